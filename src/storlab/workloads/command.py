"""Workload ``command``: any program, with a pattern or a JSON path for each metric."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Literal, Self

import jmespath
import orjson
from jmespath.exceptions import JMESPathError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storlab.errors import CommandFailed, ParseError, TimedOut, TrialError
from storlab.layers.resources import Dir, Disk, Resource
from storlab.measurements import Across, Better, Measurements, Value, metric_frame
from storlab.nodes.needs import Needs
from storlab.workloads.base import Launch, Place, Workload
from storlab.workloads.exit_record import ExitRecord, read_exit


class MetricRule(BaseModel):
    """Where in the program's output a number stands, and what it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9._-]*$", description="Name of the metric, such as `write.bandwidth`.")
    regex: str | None = Field(
        None, description="The first group is the number; several matches are combined by `pick`."
    )
    json_path: str | None = Field(None, alias="json", description="JMESPath into a JSON document.")
    unit: str = Field("1", description="Base unit after scaling: B/s, 1/s, s, B, or 1.")
    scale: float = Field(1.0, description="Factor from the program's unit to the base unit.")
    better: Better = "neither"
    across: Across = Field("sum", description="How values of several nodes combine.")
    pick: Literal["only", "first", "last", "sum", "mean", "min", "max"] = Field(
        "only", description="Which of several matches counts; `only`: exactly one must match."
    )
    source: str = Field("stdout", alias="from", description="stdout, stderr, or a file that it left in its folder.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.regex is None) == (self.json_path is None):
            raise ValueError(f"metric {self.name}: write either regex or json, one of them")
        if self.regex is not None:
            try:
                groups = re.compile(self.regex, re.MULTILINE).groups
            except re.error as error:
                raise ValueError(f"metric {self.name}: the regex {self.regex!r} is none: {error}") from None
            if groups != 1:
                raise ValueError(f"metric {self.name}: the regex needs exactly one group, around the number")
        if self.json_path is not None:
            try:
                jmespath.compile(self.json_path)
            except JMESPathError as error:
                raise ValueError(f"metric {self.name}: {self.json_path!r} is no JMESPath: {error}") from None
        if "/" in self.source or self.source.startswith("."):
            raise ValueError(f"metric {self.name}: from = {self.source!r} must be a plain file name")
        return self

    def read(self, text: str, source: str) -> float:
        """The number, in base units. Raises ``ParseError`` where it is not there."""
        numbers = self._by_regex(text) if self.regex is not None else self._by_json(text, source)
        if not numbers:
            raise ParseError(f"metric {self.name}: {self.regex or self.json_path!r} matches nothing", source)
        if self.pick == "only" and len(numbers) > 1:
            raise ParseError(
                f'metric {self.name}: {len(numbers)} matches; say which by pick = "last" or another', source
            )
        match self.pick:
            case "only" | "first":
                number = numbers[0]
            case "last":
                number = numbers[-1]
            case "sum":
                number = sum(numbers)
            case "mean":
                number = sum(numbers) / len(numbers)
            case "min":
                number = min(numbers)
            case "max":
                number = max(numbers)
        return number * self.scale

    def _by_regex(self, text: str) -> list[float]:
        assert self.regex is not None
        found = []
        for match in re.finditer(self.regex, text, re.MULTILINE):
            try:
                found.append(float((match[1] or "").replace(",", "")))
            except ValueError:
                raise ParseError(f"metric {self.name}: the match {match[1]!r} is not a number") from None
        return found

    def _by_json(self, text: str, source: str) -> list[float]:
        try:
            assert self.json_path is not None
            found = jmespath.search(self.json_path, orjson.loads(text))
        except (orjson.JSONDecodeError, JMESPathError) as error:
            raise ParseError(f"metric {self.name}: {error}", source) from None
        values = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            raise ParseError(f"metric {self.name}: {self.json_path!r} gives {found!r}, which is not a number", source)
        return [float(value) for value in values]


class CommandWorkload(Workload):
    """Runs a program on the directory or disk. Its elapsed and CPU time are always metrics."""

    kind: ClassVar[str] = "command"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir, Disk)

    argv: tuple[str, ...] = Field(min_length=1, description="Program and arguments; {target} is the directory or disk.")
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = Field(None, description="Working directory; by default a folder off the measured storage.")
    prepare_argv: tuple[str, ...] = Field((), alias="prepare", description="A command to run before, unmeasured.")
    metrics: tuple[MetricRule, ...] = ()
    expected: float | None = Field(None, description="Seconds that it takes, for the estimate of time.")

    def needs(self) -> Needs:
        return Needs(programs=tuple(argv[0] for argv in (self.argv, self.prepare_argv) if argv and "{" not in argv[0]))

    def duration(self, warm_up: float) -> float | None:
        return None if self.expected is None else self.expected + warm_up

    async def prepare(self, place: Place) -> None:
        if self.prepare_argv:
            await self._run(place, self.prepare_argv, timeout=None)
        if place.warm_up:
            try:
                await self._run(place, self.argv, timeout=place.warm_up)
            except TimedOut:
                pass  # as meant: it has been running for as long as the warm-up is to last

    async def _run(self, place: Place, argv: tuple[str, ...], timeout: float | None) -> None:
        launch = self._launch(place, argv)
        await place.node.run(launch.argv, env=launch.env, cwd=launch.cwd, timeout=timeout)

    async def launch(self, place: Place) -> Launch:
        return self._launch(place, self.argv)

    def _launch(self, place: Place, argv: tuple[str, ...]) -> Launch:
        env = {name: place.fill(value) for name, value in self.env.items()}
        cwd = place.folder if self.cwd is None else place.fill(self.cwd)
        return Launch(tuple(place.fill(word) for word in argv), env, cwd)

    def parse(self, raw: Path) -> Measurements:
        ended = read_exit(raw)
        if ended.code != 0:
            raise CommandFailed(f"{self.argv[0]} {_how(ended)}: {_last_line(raw)}")
        values = list(elapsed_values(ended))
        for rule in self.metrics:
            path = raw / rule.source
            try:
                text = path.read_text(errors="replace")
            except OSError:
                raise TrialError(f"metric {rule.name}: the command left no file {rule.source}") from None
            number = rule.read(text, str(path))
            values.append(Value(rule.name, number, rule.unit, rule.better, rule.across))
        return Measurements(metrics=metric_frame(values))


def _how(ended: ExitRecord) -> str:
    return f"was killed by {ended.signal}" if ended.signal else f"ended with status {ended.code}"


def _last_line(raw: Path) -> str:
    for name in ("stderr", "stdout"):
        path = raw / name
        lines = path.read_text(errors="replace").strip().splitlines() if path.is_file() else []
        if lines:
            return lines[-1]
    return "no output"


def elapsed_values(record: ExitRecord) -> tuple[Value, ...]:
    """What is known of any command that ended."""
    return (
        Value("elapsed", record.elapsed, "s", "lower", "max"),
        Value("cpu.user.time", record.cpu_user, "s", "lower", "sum"),
        Value("cpu.system.time", record.cpu_system, "s", "lower", "sum"),
        Value("max_rss", record.max_rss, "B", "lower", "max"),
    )
