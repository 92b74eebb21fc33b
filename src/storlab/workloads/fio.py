"""Workload ``fio``: options as a table, several jobs, or a native job file as it stands. See fio(1)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from storlab.errors import UserError
from storlab.layers.resources import Dir
from storlab.measurements import Measurements
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.units import parse_duration, parse_size
from storlab.workloads.base import Launch, Place, ReadInput, Workload

Option = bool | int | float | str | list[str | int | float]

_OUR_OPTIONS = frozenset({"output", "output-format", "create_only", "parse-only", "showcmd", "client", "server"})
_PATH_OPTIONS = frozenset({"filename", "directory", "opendir"})
_LOG_INTERVAL = 100  # ms, of runs up to a minute: fine enough to see when no operation completed
_LONG_LOG_INTERVAL = 250  # ms, of longer ones


class FioJob(BaseModel):
    """Options of one job; any option of fio's."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]


class FioWorkload(Workload):
    """Runs fio on the directory or disk. Every key that is not one of those below is an option of fio's own."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]
    kind: ClassVar[str] = "fio"

    jobs: dict[str, FioJob] = Field(
        default_factory=dict, description="Several jobs at once, each with options of its own."
    )
    job_file: str | None = Field(None, description="A native job file, relative to the study; used as it stands.")

    _job_text: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _options_make_sense(self) -> Self:
        if self.job_file is not None and self.jobs:
            raise ValueError("jobs and job_file exclude each other: put the jobs into the file")
        for options in (self._shared(), *(_extra(job) for job in self.jobs.values())):
            _refuse_foreign(options.items())
        return self

    def _shared(self) -> dict[str, Option]:
        return _extra(self)

    def needs(self) -> Needs:
        return Needs(programs=("fio",))

    def resolve(self, read: ReadInput) -> Self:
        if self.job_file is None:
            return self
        text = read(self.job_file)
        _refuse_foreign(_pairs(text))
        resolved = self.model_copy()
        resolved._job_text = text
        return resolved

    def space(self) -> int:
        shared = self._shared()
        jobs = [{**shared, **_extra(job)} for job in self.jobs.values()] or [shared]
        return sum(_size(job) * _count(job) for job in jobs)

    def duration(self, warm_up: float) -> float | None:
        shared = self._shared()
        jobs = [{**shared, **_extra(job)} for job in self.jobs.values()] or [shared]
        times = [_seconds(job) for job in jobs]
        return None if not all(times) else max(time or 0 for time in times) + warm_up

    async def check_node(self, node: Node) -> None:
        """Let fio itself parse the options, which runs nothing."""
        argv = ["fio", "--parse-only", "--directory=/nowhere"]
        job = self._job_text if self._job_text is not None else self.job_text({}, "fio")
        ended = await node.run([*argv, "-"], stdin=job.encode(), check=False)
        if not ended.ok:
            said = (ended.stderr + ended.stdout).decode(errors="replace").strip().splitlines()
            raise UserError(f"fio does not take these options: {'; '.join(said[:3]) or ended.describe()}")

    def _log_interval(self) -> int:
        """Milliseconds; the study's own log_avg_msec wins."""
        own = self._shared().get("log_avg_msec")
        if isinstance(own, int) and own > 0:
            return own
        duration = self.duration(0.0)
        return _LOG_INTERVAL if duration is not None and duration <= 60 else _LONG_LOG_INTERVAL

    def job_text(self, given: Mapping[str, Option], name: str) -> str:
        """The job file, with ``given`` options beneath the study's own."""
        sections = {"global": {**given, **self._shared()}}
        sections |= {job: _extra(options) for job, options in self.jobs.items()} or {name: {}}
        return "\n".join(_section(title, options) for title, options in sections.items())

    def _given(self, place: Place) -> dict[str, Option]:
        """What Storlab gives: where to work, the round's seed, logs. The study's own options win."""
        target: dict[str, Option] = (
            {"directory": place.path} if isinstance(place.target, Dir) else {"filename": place.path}
        )
        logs: dict[str, Option] = {f"write_{what}_log": "series" for what in ("bw", "iops", "lat")}
        ramp: dict[str, Option] = {"ramp_time": f"{place.warm_up:g}s"} if place.warm_up else {}
        return target | {"randseed": place.seed} | logs | {"log_avg_msec": self._log_interval()} | ramp

    async def _job_arguments(self, place: Place) -> list[str]:
        given = self._given(place)
        if self._job_text is not None:
            await place.node.write(f"{place.folder}/job.fio", place.fill(self._job_text).encode())
            # Options before a job file are defaults for its global section: the file itself stays as it stands.
            return [*(f"--{key}={value}" for key, value in given.items()), "job.fio"]
        text = place.fill(self.job_text(given, place.name))
        await place.node.write(f"{place.folder}/job.fio", text.encode())
        return ["job.fio"]

    async def prepare(self, place: Place) -> None:
        if not isinstance(place.target, Dir):
            return  # a disk has no files to lay out
        layout = f"{place.name}: {self._job_text or self.job_text({}, place.name)}"
        before = None if place.memory is None else place.memory.get(layout)
        if before is not None and set(before.splitlines()) <= set((await _files(place)).splitlines()):
            return  # an earlier trial's files are all there, in their sizes
        arguments = await self._job_arguments(place)
        argv = ["fio", "--create_only=1", "--output-format=json+", "--output=layout.json", *arguments]
        ended = await place.node.run(argv, cwd=place.folder, check=False)
        if not ended.ok:
            from storlab.workloads.fio_results import raise_failure

            with contextlib.suppress(FileNotFoundError):
                raise_failure(await place.node.read(f"{place.folder}/layout.json"), ended.stderr, "layout.json")
            ended.check(place.node.name)
        if place.memory is not None:
            place.memory[layout] = await _files(place)

    async def launch(self, place: Place) -> Launch:
        arguments = await self._job_arguments(place)
        return Launch(("fio", "--output-format=json+", "--output=fio.json", *arguments), cwd=place.folder)

    def parse(self, raw: Path) -> Measurements:
        from storlab.workloads.fio_results import read_results  # numpy and polars: not needed to load a study

        return read_results(raw, self._log_interval() / 1000)


async def _files(place: Place) -> str:
    """Size and name of each file on the target."""
    return await place.node.output("find", place.path, "-type", "f", "-printf", "%s %P\n")


def _extra(model: BaseModel) -> dict[str, Option]:
    return dict(model.__pydantic_extra__ or {})


def _section(title: str, options: Mapping[str, Option]) -> str:
    return "".join([f"[{title}]\n", *(f"{key}={_text(value)}\n" for key, value in options.items())])


def _text(value: Option) -> str:
    match value:
        case bool():
            return str(int(value))
        case list():
            return ":".join(str(item) for item in value)
        case _:
            return str(value)


def _pairs(job_file: str) -> Iterable[tuple[str, str]]:
    for line in job_file.splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith(("#", ";")):
            yield key.strip(), value.strip()


def _refuse_foreign(options: Iterable[tuple[str, Option]]) -> None:
    """Storlab touches only what its stack provides: fio may not be sent elsewhere."""
    for key, value in options:
        if key.replace("-", "_") in {option.replace("-", "_") for option in _OUR_OPTIONS}:
            raise ValueError(f"the option {key} is Storlab's own: leave it out")
        elsewhere = [
            part for part in re.split(r"(?<!\\):", str(value)) if part.startswith("/") or ".." in part.split("/")
        ]
        if key in _PATH_OPTIONS and elsewhere:
            raise ValueError(
                f"{key} = {value!r} leads away from the stack under test: write a name relative to it, "
                "or {target}, and name devices by a layer in the stack"
            )


def _size(options: Mapping[str, Option]) -> int:
    try:
        return parse_size(options.get("size", 0))
    except ValueError:
        return 0  # "80%": fio's own way of saying it depends on the target


def _count(options: Mapping[str, Option]) -> int:
    count = options.get("numjobs", 1)
    return int(str(count)) if str(count).isdigit() else 1


def _seconds(options: Mapping[str, Option]) -> float | None:
    if not options.get("time_based") or "runtime" not in options:
        return None
    try:
        return parse_duration(options["runtime"])
    except ValueError:
        return float(str(options["runtime"])) if str(options["runtime"]).isdigit() else None
