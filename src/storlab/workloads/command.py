"""Workload ``command``: any program, with a pattern or a JSON path for each metric."""

from __future__ import annotations

import contextlib
import math
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import orjson
import polars as pl
from jmespath.exceptions import JMESPathError
from pydantic import Field, PrivateAttr, field_validator, model_validator

from storlab.base.errors import CommandFailed, ParseError, TimedOut, TrialError
from storlab.base.patterns import MOST_TEXT, PatternError, json_path, pattern
from storlab.base.reach import Beside, Command, OwnName, Pattern, Variable
from storlab.base.reading import read_file
from storlab.base.units import Duration, Size, shown
from storlab.layers.resources import RESOURCE_WORDS, Dir, Disk, Export, Resource, Server, Swap
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.process import ExitRecord, telling
from storlab.tools.kinds import reader_names
from storlab.tools.readers.importer import check_samples, measured, read_output
from storlab.tools.readers.numbers import GROUPED, PICKED
from storlab.tools.readers.rules import Measure, Reader, built_in, reader_of, valid_name
from storlab.workloads.base import (
    ELAPSED,
    Launch,
    OptionError,
    ReadInput,
    RunContext,
    Workload,
    bytes_of,
    elapsed_values,
    read_exit,
    words_in,
)


class MetricRule(Measure):
    """Where in the program's output a number stands, and what it is."""

    regex: Pattern | None = Field(
        None,
        description="A regular expression of [RE2](https://github.com/google/re2/wiki/Syntax), without lookaround and "
        "back references; `^` and `$` are the ends of lines. Its one group is the number; several matches are combined "
        "by `pick`.",
    )
    json_path: Pattern | None = Field(None, alias="json", description="JMESPath into a JSON document.")
    pick: Literal["only", "first", "last", "sum", "mean", "min", "max"] = Field(
        "only", description="Which of several matches counts; `only`: exactly one must match."
    )
    source: OwnName = Field(
        "stdout", alias="from", description="stdout, stderr, or a file that it left in its folder; up to 64 MiB."
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        return valid_name(name)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.regex is None) == (self.json_path is None):
            raise ValueError(f"metric {self.name}: write either regex or json, one of them")
        if self.regex is not None:
            _check_regex(self.regex)
        if self.json_path is not None:
            try:
                json_path(self.json_path)
            except PatternError as error:
                raise OptionError(f"{shown(self.json_path)} can't be a JMESPath here: {error}", "json") from None
        if not self.source or "/" in self.source or self.source.startswith(".") or not self.source.isprintable():
            raise OptionError(f"{shown(self.source)} must be a plain file name, or stdout or stderr", "from")
        return self

    @property
    def declared(self) -> MetricSpec:
        return self.declared_as(self.name)

    def read(self, text: str, source: str) -> float:
        """The number, in base units. Raises ``ParseError`` where it is not there."""
        try:
            numbers = self._by_regex(text, source) if self.regex is not None else self._by_json(text, source)
        except PatternError as error:
            raise ParseError(f"metric {self.name}: {shown(self.regex)}: {error}", source) from None
        if not numbers:
            raise ParseError(f"metric {self.name}: {shown(self.regex or self.json_path)} matches nothing", source)
        if self.pick == "only" and len(numbers) > 1:
            raise ParseError(f'metric {self.name}: more than one match; say which by pick = "last" or another', source)
        number = PICKED[self.pick](numbers) * self.factor
        if not math.isfinite(number):
            raise ParseError(f"metric {self.name}: {number} is no finite number", source)
        return number

    def _by_regex(self, text: str, source: str) -> list[float]:
        assert self.regex is not None
        found = []
        for written in islice(pattern(self.regex).first_groups(text), {"first": 1, "only": 2}.get(self.pick)):
            if "," in written and not GROUPED.fullmatch(written):
                said = f"the match {shown(written)} has a comma that is not between thousands"
                raise ParseError(f"metric {self.name}: {said}: let the program print in English (LC_ALL=C)", source)
            try:
                found.append(float(written.replace(",", "")))
            except ValueError:
                raise ParseError(f"metric {self.name}: the match {shown(written)} is not a number", source) from None
        return found

    def _by_json(self, text: str, source: str) -> list[float]:
        assert self.json_path is not None
        try:
            found = json_path(self.json_path).search(orjson.loads(text))
        except (orjson.JSONDecodeError, JMESPathError, RecursionError) as error:
            raise ParseError(f"metric {self.name}: {str(error).splitlines()[0]}", source) from None
        values = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            where = shown(self.json_path)
            raise ParseError(f"metric {self.name}: {where} gives {shown(found)}, which is not a number", source)
        return [float(value) for value in values]


def _check_regex(regex: str) -> None:
    try:
        groups = pattern(regex).groups
    except PatternError as error:
        raise OptionError(f"{shown(regex)} can't be a regular expression here: {error}", "regex") from None
    if groups != 1:
        raise OptionError(f"{shown(regex)} needs exactly one group, around the number; (?:…) is none", "regex")


_START = 0.01  # s: forking, loading and linking a program take one or two ms, and twice that on a busy machine
_MOSTLY_START = "the command ran for less than 10 ms, of which starting it is a large part: give it more to do"


class Expectation(Model):
    """What a command must have done: one that did less has failed, however fast it was."""

    bytes: Size | None = Field(None, ge=1, description="Bytes, by its metrics that have a `quantity` of bytes.")
    min_time: Duration | None = Field(None, gt=0, description="How long it must have run.")


class CommandWorkload(Workload):
    """Runs a program on a directory or disk, or against a server. Its elapsed and CPU time are always metrics."""

    kind: ClassVar[str] = "command"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir, Disk, Server, Export, Swap)

    argv: tuple[Command, ...] = Field(
        (),
        description="Program and arguments. {target} is the directory, disk or server; of a server there are also "
        "{host}, {port}, {socket}, {database} or {export}. If Storlab is root, it runs as [another "
        "user](confinement.md): what it reads must be everybody's, or be allowed by `--allow read=FILE`. A file beside "
        "the study that is a word here reaches it also where others can't get into the study's folder.",
    )
    run: Command | None = Field(None, description="Instead of argv: the same as one line, in words as of a shell.")
    env: dict[Variable, Variable] = Field(default_factory=dict, description="Environment variables to set.")
    cwd: Command | None = Field(None, description="Working directory; by default a folder off the measured storage.")
    prepare_argv: tuple[Command, ...] = Field((), alias="prepare", description="A command to run before, unmeasured.")
    reads: Beside | None = Field(
        None,
        description="How its output is read: a [reader](../how-to/any-tool.md) of Storlab's own, by its name, or "
        "one of yours, a file `NAME.toml` beside the study.",
    )
    metrics: tuple[MetricRule, ...] = Field((), description="What else to read out of its output.")
    expected: Duration | None = Field(None, description="How long it takes, for the estimate of time.")
    expect: Expectation = Field(
        Expectation(), description="What it must have done: a trial in which it did less has failed."
    )

    _reader: Reader | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("run"), str):
            return data
        if "argv" in data:
            raise OptionError("run and argv are the same: write one of them", "run")
        try:
            return {**data, "argv": shlex.split(data["run"])}
        except ValueError as error:
            raise OptionError(f"{shown(data['run'])} can't be split into words: {error}", "run") from None

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if not self.argv:
            raise OptionError("it is empty: write the program and its arguments", "argv")
        if self.reads in reader_names():
            self._reader = built_in(self.reads)
        elif self.reads is not None and not self.reads.endswith(".toml"):
            named = ", ".join(reader_names())
            raise OptionError(
                f"there is no reader {shown(self.reads)}: write one of {named}, or the file of one of your own, "
                "NAME.toml beside the study",
                "reads",
            )
        for key, argv in (("argv", self.argv), ("prepare", self.prepare_argv)):
            if argv and not argv[0]:
                raise OptionError("the name of a program is empty", key, 0)
        for name in self.env:
            if not name or "=" in name or "\0" in name:
                raise OptionError(f"{shown(name)} can't be an environment variable", "env", name)
        if self.cwd is not None and not self.cwd.startswith(("/", "{")):
            raise OptionError(f'{shown(self.cwd)} must be an absolute path, or begin with "{{target}}"', "cwd")
        always = [spec.name for spec in ELAPSED]
        names = list(always)
        for index, rule in enumerate(self.metrics):
            if rule.name in always:
                raise OptionError(f"{rule.name} is measured of every command: use another name", "metrics", index)
            if rule.name in names:
                raise OptionError(f"the metric {rule.name} is listed twice", "metrics", index)
            names.append(rule.name)
        if self.expect.bytes is not None and not (self.reads or any(rule.quantity for rule in self.metrics)):
            remedy = 'one of its metrics must say how many: quantity = "bytes written", or "bytes read"'
            raise OptionError(f"nothing tells how many bytes the command moved: {remedy}", "expect", "bytes")
        if not self.takes():
            words = ", ".join(f"{{{word}}}" for word in sorted(self._words()))
            raise OptionError(f"nothing that a stack can end as has all of {words}", "argv")
        return self

    def takes(self) -> tuple[type[Resource], ...]:
        return tuple(kind for kind in self.accepts if self._words() <= kind.has_words)

    def _words(self) -> set[str]:
        texts = (*self.argv, *self.prepare_argv, *self.env.values(), self.cwd or "")
        return {word for text in texts for word in words_in(text)} & {*RESOURCE_WORDS}

    def resolve(self, read: ReadInput) -> Self:
        if self.reads is None or self._reader is not None:
            return self
        resolved = self.model_copy()
        try:
            resolved._reader = reader_of(read(self.reads), self.reads)
            check_samples(resolved._reader, self.reads)
        except ValueError as error:
            raise OptionError(str(error), "reads") from None
        if twice := {spec.name for spec in resolved._reader.declared} & {spec.name for spec in self.declares()}:
            raise OptionError(f"the metric {sorted(twice)[0]} is read by {self.reads} as well", "metrics")
        return resolved

    def declares(self) -> tuple[MetricSpec, ...]:
        read = () if self._reader is None else self._reader.declared
        return (*ELAPSED, *(rule.declared for rule in self.metrics), *read)

    def needs(self) -> Needs:
        return Needs(programs=(*self.programs(),))

    def programs(self) -> dict[str, tuple[str | int, ...]]:
        named = {"prepare": self.prepare_argv, "argv": self.argv}
        return {argv[0]: (key, 0) for key, argv in named.items() if argv and "{" not in argv[0]}

    def commands(self) -> tuple[tuple[str, ...], ...]:
        return tuple(argv for argv in (self.prepare_argv, self.argv) if argv)

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
        values, moved = list(elapsed_values(ended)), 0.0
        for rule in self.metrics:
            text = _left(raw, rule.source, f"metric {rule.name}")
            number = rule.read(text.decode(errors="replace"), str(raw / rule.source))
            moved += number if rule.quantity else 0
            values.append(rule.declared.value(number))
        read = Measurements()
        if self._reader is not None:
            read = self._read(self._reader, raw)
            quantities = {rule.folded: rule.quantity for rule in self._reader.metrics}
            moved += sum(value for name, value in read.totals().items() if quantities.get(name))
        self._refuse_less(ended, moved)
        # Of a command that measures nothing itself, its time is the answer.
        too_short = ended.elapsed < _START and not (self.metrics or self._reader)
        metrics = pl.concat([metric_frame(values), read.metrics])
        return replace(read, metrics=metrics, warnings=(*read.warnings, *((_MOSTLY_START,) if too_short else ())))

    @staticmethod
    def _read(reader: Reader, raw: Path) -> Measurements:
        text = _left(raw, reader.source, reader.title)
        runs = read_output(reader, text, str(raw / reader.source))
        if len(runs) > 1:
            said = f"it has {len(runs)} runs of {reader.title}, and a trial is one: run it once for each"
            raise ParseError(said, str(raw / reader.source))
        return replace(measured(runs[0], {got.name: got for got in runs[0].values}), declared=())

    def _refuse_less(self, ended: ExitRecord, moved: float) -> None:
        least, shortest = self.expect.bytes, self.expect.min_time
        if least is not None and moved < least:
            raise TrialError(f"{ended.argv[0]} moved {moved:.0f} bytes of the {least} that are expected of it")
        if shortest is not None and ended.elapsed < shortest:
            lasted = f"{ended.elapsed:.3g} s of the {shortest:g} s"
            raise TrialError(f"{ended.argv[0]} ran for {lasted} that are expected of it")


def _left(raw: Path, name: str, what: str) -> bytes:
    try:
        return read_file(raw / name, MOST_TEXT)
    except FileNotFoundError:
        raise TrialError(f"{what}: the command left no file {name}") from None
    except OSError as error:
        raise TrialError(f"{what}: cannot read {name}: {error.strerror}") from None


def _refuse_failure(record: ExitRecord, raw: Path) -> None:
    if record.code == 0 and not record.timed_out:
        return
    said = "\n".join(bytes_of(raw / name).decode(errors="replace") for name in ("stdout", "stderr")).strip()
    last = f": {telling(said.splitlines())}" if said else ": no output"
    if record.timed_out:
        raise TimedOut(f"{record.argv[0]} was stopped at the time-out{last}", said)
    raise CommandFailed(f"{record.describe()}{last}", said)
