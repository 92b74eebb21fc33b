"""Workload ``command``: any program, with a pattern or a JSON path for each metric."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from storlab.errors import CommandFailed, TimedOut, TrialError
from storlab.layers.resources import RESOURCE_WORDS, Dir, Disk, Export, Resource, Server
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.process import ExitRecord, telling
from storlab.units import Duration, shown
from storlab.workloads.base import Launch, OptionError, RunContext, Workload, words_in
from storlab.workloads.command.metric_rule import MetricRule
from storlab.workloads.exit_record import ELAPSED, bytes_of, elapsed_values, read_exit


class CommandWorkload(Workload):
    """Runs a program on a directory or disk, or against a server. Its elapsed and CPU time are always metrics."""

    kind: ClassVar[str] = "command"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir, Disk, Server, Export)

    argv: tuple[str, ...] = Field(
        min_length=1,
        description="Program and arguments. {target} is the directory, disk or server; of a server there are also "
        "{host}, {port}, {socket}, {database} or {export}.",
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables to set.")
    cwd: str | None = Field(None, description="Working directory; by default a folder off the measured storage.")
    prepare_argv: tuple[str, ...] = Field((), alias="prepare", description="A command to run before, unmeasured.")
    metrics: tuple[MetricRule, ...] = Field((), description="What to read out of its output.")
    expected: Duration | None = Field(None, description="How long it takes, for the estimate of time.")

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        for key, argv in (("argv", self.argv), ("prepare", self.prepare_argv)):
            if argv and not argv[0]:
                raise OptionError("the name of a program is empty", key, 0)
            for index, word in enumerate(argv):
                if "\0" in word:
                    raise OptionError(f"{shown(word)}: no program takes a NUL in an argument", key, index)
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise OptionError(f"{shown(name)} can't be an environment variable", "env", name)
        if self.cwd is not None and not self.cwd.startswith(("/", "{")):
            raise OptionError(f'{shown(self.cwd)} must be an absolute path, or begin with "{{target}}"', "cwd")
        always = [spec.name for spec in ELAPSED]
        names = list(always)
        for index, rule in enumerate(self.metrics):
            if rule.name in always:
                raise OptionError(f"{rule.name} is measured of every command: use another name", "metrics", index)
            if rule.name in names:
                raise OptionError(f"the metric {rule.name} is there twice", "metrics", index)
            names.append(rule.name)
        if not self.takes():
            words = ", ".join(f"{{{word}}}" for word in sorted(self._words()))
            raise OptionError(f"nothing that a stack can end as has all of {words}", "argv")
        return self

    def takes(self) -> tuple[type[Resource], ...]:
        """Those kinds that have what its words name."""
        return tuple(kind for kind in self.accepts if self._words() <= kind.has_words)

    def _words(self) -> set[str]:
        texts = (*self.argv, *self.prepare_argv, *self.env.values(), self.cwd or "")
        return {word for text in texts for word in words_in(text)} & {*RESOURCE_WORDS}

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*ELAPSED, *(rule.declared for rule in self.metrics))

    def needs(self) -> Needs:
        return Needs(programs=tuple(argv[0] for argv in (self.argv, self.prepare_argv) if argv and "{" not in argv[0]))

    def duration(self, warm_up: float) -> float | None:
        return None if self.expected is None else self.expected + warm_up

    async def prepare(self, place: RunContext) -> None:
        if self.prepare_argv:
            await self._run(place, self.prepare_argv, timeout=None)
        if place.warm_up:
            with contextlib.suppress(TimedOut):  # as meant: it has been running for as long as the warm-up lasts
                await self._run(place, self.argv, timeout=place.warm_up)

    async def _run(self, place: RunContext, argv: tuple[str, ...], timeout: float | None) -> None:
        launch = self._launch(place, argv)
        await place.node.run(launch.argv, env=launch.env, cwd=launch.cwd, timeout=timeout)

    async def launch(self, place: RunContext) -> Launch:
        return self._launch(place, self.argv)

    def _launch(self, place: RunContext, argv: tuple[str, ...]) -> Launch:
        env = {name: place.fill(value) for name, value in self.env.items()}
        cwd = place.folder if self.cwd is None else place.fill(self.cwd)
        return Launch(tuple(place.fill(word) for word in argv), env, cwd)

    def parse(self, raw: Path) -> Measurements:
        ended = read_exit(raw)
        _refuse_failure(ended, raw)
        values = list(elapsed_values(ended))
        for rule in self.metrics:
            path = raw / rule.source
            try:
                text = path.read_text(errors="replace")
            except OSError:
                raise TrialError(f"metric {rule.name}: the command left no file {rule.source}") from None
            number = rule.read(text, str(path))
            values.append(rule.declared.value(number))
        return Measurements(metrics=metric_frame(values))


def _refuse_failure(record: ExitRecord, raw: Path) -> None:
    """Raises ``TimedOut`` or ``CommandFailed`` with the last that it said."""
    if record.code == 0 and not record.timed_out:
        return
    said = "\n".join(bytes_of(raw / name).decode(errors="replace") for name in ("stdout", "stderr")).strip()
    last = f": {telling(said.splitlines())}" if said else ": no output"
    if record.timed_out:
        raise TimedOut(f"{record.argv[0]} was stopped at the time-out{last}", said)
    raise CommandFailed(f"{record.describe()}{last}", said)
