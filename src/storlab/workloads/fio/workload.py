"""Workload ``fio``: options as a table, several jobs, or a native job file as it stands. See fio(1)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from storlab.base.errors import CommandFailed, Unsupported, UserError
from storlab.base.reach import LIBRARY, READS_FILE, Beside, Found, OwnName, Program, Reach
from storlab.base.text import is_whole
from storlab.layers.resources import Dir, Disk, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.answers import files_below
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.tools.fio.declared import declared, wanted_percentiles
from storlab.workloads.base import Launch, OptionError, ReadInput, RunContext, Work, Workload
from storlab.workloads.fio import options as fio_options
from storlab.workloads.fio import reach, sliced
from storlab.workloads.fio.layout import files_of, known_files
from storlab.workloads.fio.options import Job, Option, Options, Sections, in_fios_words

_AGENT = "/proc/self/exe"  # the agent becomes what it starts
_PERCENTILES = "percentile_list"
_OF_LATENCY = frozenset({"lat_percentiles", "clat_percentiles", "disable_lat", "gtod_reduce"})
"""Who writes one of these has chosen which latencies there are."""
_UNMAPPED = {errno.EINVAL, errno.ENODEV}
"""What mmap(2) says of files that can't be mapped, or not to be written, as on shared folders without a cache."""

_MANY_FILES = 50_000
"""Of more, fio's own pools have no room, and it aborts (``smalloc: OOM``, 3.33)."""
_FILE = 2  # KiB of each pool, a file

_LOG_INTERVALS = {60.0: 100, 600.0: 250, float("inf"): 1000}
"""Seconds of load, at most → milliseconds of its logs: fine enough to see when no operation completed."""


class FioJob(BaseModel):
    """Options of one job; any option of fio's."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]


class FioWorkload(Workload):
    """Runs fio on the directory or disk. Every key other than jobs, job_file and path is an option of fio's, of those
    that docs/reference/options.md lists."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Option]
    kind: ClassVar[str] = "fio"

    jobs: dict[OwnName, FioJob] = Field(
        default_factory=dict, description="Several jobs at once, each with options of its own."
    )
    path: Program | None = Field(None, pattern="^/[^\\x00]+$", max_length=4095, description="An fio of your own.")
    job_file: Beside | None = Field(None, description="A native job file below the study's folder; used as it stands.")

    beyond: ClassVar[Mapping[str, Reach]] = {"ioengine": LIBRARY, reach.TRACE: READS_FILE}

    _job_text: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _options_make_sense(self) -> Self:
        if self.job_file is not None:
            if self.jobs:
                raise OptionError("jobs and job_file exclude each other: put the jobs into the file", "job_file")
            if own := next(iter(_extra(self)), None):
                raise OptionError("with a job_file all options stand in that file: put this one there", own)
        reach.check_options(_extra(self))
        for name, job in self.jobs.items():
            reach.check_job_name(name)
            reach.check_options(_extra(job), "jobs", name)
        reach.check_replays(self._jobs())
        return self

    def _jobs(self) -> list[Job]:
        if self._job_text is not None:
            return fio_options.jobs_of(fio_options.sections_of(self._job_text))
        return fio_options.jobs_of(self._sections({}, "fio"))

    def declares(self) -> tuple[MetricSpec, ...]:
        jobs = self._jobs()
        patterns = (".*sync.*", "steadystate|ss", "slat_percentiles", "latency_target")
        sync, steady, submission, target = (fio_options.may_have(jobs, pattern) for pattern in patterns)
        lists = [fio_options.text(value) for job in jobs for key, value in job.options.items() if key == _PERCENTILES]
        return declared(
            fio_options.directions(jobs),
            sync=sync,
            steady=steady,
            target=target,
            percentiles=wanted_percentiles(lists),
            submission=submission,
        )

    def takes(self) -> tuple[type[Resource], ...]:
        return (Dir,) if fio_options.names_files(self._jobs()) else (Dir, Disk)

    def needs(self) -> Needs:
        return Needs(programs=("fio",)) if self.path is None else Needs(paths=(self.path,))

    @property
    def _program(self) -> str:
        return self.path or "fio"

    def resolve(self, read: ReadInput) -> Self:
        if self.job_file is None:
            return self
        text = fio_options.read_job_file(self.job_file, read)
        if not reach.jobs_in(text):
            raise OptionError(f"{self.job_file} is not a job file of fio's: it has no job, such as [write]", "job_file")
        resolved = self.model_copy()
        resolved._job_text = text
        return resolved

    def space(self) -> int:
        return fio_options.total_size(self._jobs())

    def duration(self, warm_up: float) -> float | None:
        return fio_options.duration(self._jobs(), warm_up)

    def work(self) -> Work | None:
        return fio_options.work(self._jobs())

    def leaves_out(self, warm_up: float) -> str:
        said = [fio_options.without_effect(self._jobs())]
        if fio_options.ends_while_ramping(self._jobs(), warm_up):
            said.append("warm_up is left out: fio has none that is longer than runtime, and measures from the start")
        return "; ".join(filter(None, said))

    def measures_all(self, warm_up: float) -> bool:
        return not fio_options.ramps(self._jobs(), warm_up)

    def reaches(self) -> Iterator[Found]:
        for name in reach.engines_of(self._jobs()):
            if not reach.is_built_in(name):
                yield Found(self._place_of("ioengine"), "code", name.removeprefix("external:"))
        for trace in reach.traces_of(self._jobs()):
            yield Found(self._place_of(reach.TRACE), "read", trace)

    def _place_of(self, option: str) -> tuple[str]:
        return ("job_file",) if self.job_file is not None else (option,) if option in _extra(self) else ("jobs",)

    @classmethod
    async def unchecked(cls, node: Node, workloads: Sequence[Self]) -> list[Self]:
        tables = [load for load in workloads if load._job_text is None and load.path is None]
        refused = [tables[number] for number in await reach.refused(node, [load._jobs() for load in tables])]
        return [load for load in workloads if load not in tables or load in refused]

    async def check_node(self, node: Node) -> None:
        """Let fio itself parse the options, which runs nothing."""
        try:
            if self._job_text is None:
                await reach.parse(node, self._jobs(), self._program)
            else:
                await reach.parse_file(node, self._job_text, self._program)
        except reach.RefusedOptions as error:
            raise UserError(str(error), self._written(error.option)) from None
        except CommandFailed as error:
            if self.path is None:
                raise
            raise UserError(f"{error}; everybody must be able to run it", (self.kind, "path")) from None
        for message in (await reach.unknown_engines(node, [self._jobs()], self._program)).values():
            raise UserError(message)

    def _written(self, option: str) -> tuple[str, ...]:
        """Where in the workload's table an option stands; nowhere, where it is in a native job file."""
        if option in _extra(self):
            return self.kind, option
        return next((("fio", "jobs", job, option) for job, own in self.jobs.items() if option in _extra(own)), ())

    def _log_interval(self) -> int:
        """Milliseconds; the study's own log_avg_msec wins."""
        for job in self._jobs():
            own = str(job.options.get("log_avg_msec", ""))
            if is_whole(own) and int(own) > 0:
                return int(own)
        duration = self.duration(0.0) or 600.0
        return next(interval for longest, interval in _LOG_INTERVALS.items() if duration <= longest)

    def _sections(self, given: Options, name: str) -> Sections:
        jobs = [(job, in_fios_words(_extra(options))) for job, options in self.jobs.items()] or [(name, {})]
        return [("global", {**given, **in_fios_words(_extra(self))}), *jobs]

    def job_text(self, given: Options, name: str) -> str:
        return "\n".join(fio_options.section(title, options) for title, options in self._sections(given, name))

    def _given(self, place: RunContext) -> dict[str, Option]:
        target = "directory" if isinstance(place.target, Dir) else "filename"
        given: dict[str, Option] = {target: place.path, "randseed": place.seed}
        given |= {f"write_{what}_log": "series" for what in ("bw", "iops", "lat")}
        # Rates are averaged over the same interval: fio would take 500 ms for them, whatever the logs have.
        given |= dict.fromkeys(("log_avg_msec", "bwavgtime", "iopsavgtime"), self._log_interval())
        if _OF_LATENCY.isdisjoint(fio_options.plain(key) for job in self._jobs() for key in job.options):
            # Buffered I/O of libaio waits when it is submitted: by completion latency it would take next to no time.
            given |= {"lat_percentiles": 1, "clat_percentiles": 0}
        if place.node.confinement is not None and not place.node.confinement.may_flush(place.path):
            given["invalidate"] = 0  # of a device that takes root's rights: the agent does it, before fio starts
        if place.warm_up:
            given["ramp_time"] = f"{round(place.warm_up * 1000)}ms"  # "1.5s" is 1 s to fio
        return given

    async def _job_arguments(self, place: RunContext) -> list[str]:
        given = self._given(place)
        # Options before a job file are defaults for its global section: the file itself stays as it stands.
        before = [] if self._job_text is None else [f"--{key}={value}" for key, value in given.items()]
        text = self._job_text if self._job_text is not None else self.job_text(given, place.name)
        await place.node.write(f"{place.folder}/job.fio", self._filled(place, text).encode())
        files = fio_options.files(self._jobs())
        memory = [f"--alloc-size={files * _FILE}"] if files > _MANY_FILES else []
        return [*memory, *before, "job.fio"]

    async def prepare(self, place: RunContext) -> None:
        if not isinstance(place.target, Dir):
            return  # a disk has no files to lay out
        layout = f"{place.name}: {self._job_text or files_of(self._sections({}, place.name))}"
        before = None if place.memory is None else place.memory.get(layout)
        if before is not None and set(before.splitlines()) <= set((await _files(place)).splitlines()):
            return  # an earlier trial's files are all there, in their sizes
        if not await self._laid_out_by_agent(place):
            await self._lay_out(place)
        if place.memory is not None:
            place.memory[layout] = await _files(place)

    async def _laid_out_by_agent(self, place: RunContext) -> bool:
        """Whether the agent has laid out the files, which takes less than fio's start. Where it fails, fio says why."""
        if self._job_text is not None:
            return False
        text = self._filled(place, self.job_text(self._given(place), place.name))
        files = known_files(fio_options.jobs_of(fio_options.sections_of(text)), place.path)
        if files is None:
            return False
        # Nodes and loads have the same seed in a round, and may lie on storage that keeps equal blocks once.
        seed = hashlib.blake2b(f"{place.seed} {place.node.name} {place.name}".encode(), digest_size=8).digest()
        spec = {"record": f"{place.folder}/layout.json", "seed": int.from_bytes(seed), "files": files}
        return (await place.node.run([_AGENT, "layout", orjson.dumps(spec).decode()], check=False)).ok

    async def _lay_out(self, place: RunContext) -> None:
        arguments = await self._job_arguments(place)
        argv = [self._program, "--create_only=1", "--output-format=json+", "--output=layout.json", *arguments]
        ended = await place.node.run(argv, cwd=place.folder, check=False)
        if not ended.ok:
            from storlab.workloads.fio.results import raise_failure

            with contextlib.suppress(FileNotFoundError):
                raise_failure(await place.node.read(f"{place.folder}/layout.json"), ended.stderr, "layout.json")
            ended.check(place.node.name)

    async def launch(self, place: RunContext) -> Launch:
        arguments = await self._job_arguments(place)
        return Launch((self._program, "--output-format=json+", "--output=fio.json", *arguments), cwd=place.folder)

    def unsliceable(self, later: str) -> str:
        if self.job_file is not None:
            return "a native job file is run as it stands"
        return sliced.unsliceable(self._jobs(), later)

    async def launch_sliced(self, place: RunContext, longest: float) -> Launch:
        sections = sliced.sliced(self._sections(self._given(place), place.name), longest)
        job_file = "\n".join(fio_options.section(title, options) for title, options in sections)
        await place.node.write(f"{place.folder}/job.fio", self._filled(place, job_file).encode())
        return Launch((self._program, "--output-format=json+", "--output=fio.json", "job.fio"), cwd=place.folder)

    @staticmethod
    def _filled(place: RunContext, job_file: str) -> str:
        is_directory = isinstance(place.target, Dir)
        return place.fill(fio_options.in_job_file(job_file, fio_options.below_directory) if is_directory else job_file)

    def parse(self, raw: Path) -> Measurements:
        from storlab.tools.fio.output import JobFailed  # numpy and polars: not needed to load a study
        from storlab.workloads.fio.results import read_results

        try:
            return read_results(raw, self._log_interval() / 1000, self._jobs())
        except JobFailed as error:
            if error.number in _UNMAPPED and set(reach.engines_of(self._jobs())) == {"mmap"}:
                said = f"{errno.errorcode[error.number]}, {os.strerror(error.number).lower()}"
                raise Unsupported(f"files can't be mapped there: fio's engine mmap got {said}") from None
            raise


async def _files(place: RunContext) -> str:
    return "\n".join(f"{size} {path}" for path, size in await files_below(place.node, place.path))


def _extra(model: BaseModel) -> dict[str, Option]:
    return dict(model.__pydantic_extra__ or {})
