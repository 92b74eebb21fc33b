"""Workload ``files``: a storm of many small files, by the agent's own ``storlab-agent files``.

Why not fio: as fio 3.33 did here (2 cores, 4k files, ``--rw=write --create_on_open=1 --openfiles=1 --nrfiles=N``),

- 100,000 files take 2.3 s with ``--file_service_type=sequential``. Without, it searches all its files for the next one:
  20,000 took 14 s, and ``filecreate`` and ``filestat`` had not ended 100,000 after 200 s;
- 1,000,000 files abort it (``smalloc: OOM``); with ``--alloc-size=2097152`` they take 572 MB, where the agent has 2 MB;
- its latencies are those of the writes: neither the open nor ``fsync_on_close`` is in any (``sync.total_ios`` is 0);
- ``filecreate`` writes no data; creations, stats and deletions are reported as reads of 4 KiB;
- a job has one flat directory, and sizes are even between two bounds.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import orjson
from pydantic import Field, model_validator

from storlab.base.units import Duration, Size, size_text
from storlab.layers.resources import Dir, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.workloads.base import Launch, OptionError, RunContext, Work, Workload
from storlab.workloads.files.options import Directories, Fsync, Sizes, check_directories, declared
from storlab.workloads.files.report import raise_failure, read_results

Phase = Literal["create", "read", "stat", "delete"]
NOTES = "notes"
"""A file in the workload's folder: sentences that become warnings, one a line."""

_AS_WRITTEN = {"files", "workers", "phases", "order", "fsync", "direct", "end_sync", "drop_caches", "verify"}
_AGENT = "/proc/self/exe"  # the agent becomes what it starts; a confined process can't look at others' programs
_BLOCK = 4096  # bytes: of most file systems
_MOST_FILES = 10**9


class FilesWorkload(Workload):
    """Creates, writes, reads, stats and deletes many files. Phases follow each other; all workers wait between them."""

    kind: ClassVar[str] = "files"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir,)

    files: int = Field(ge=1, le=_MOST_FILES, description="How many, of all workers together.")
    size: Sizes = Field(default="4k", validate_default=True, description="Size of each file, or a distribution.")
    directories: Directories = Field(default_factory=Directories, description="Where the files lie.")
    workers: int = Field(1, ge=1, le=256, description="Threads that share the files.")
    phases: tuple[Phase, ...] = Field(
        ("create", "read", "stat", "delete"),
        min_length=1,
        description="What is measured. Without create, the files are made before, unmeasured.",
    )
    order: Literal["same", "random"] = Field("same", description="Order in which read, stat and delete take the files.")
    fsync: Fsync = Field(
        "none", description="After each file: fdatasync (data), fsync (file, true), and of its directory (directory)."
    )
    end_sync: bool = Field(True, description="syncfs after create and after delete, measured separately.")
    direct: bool = Field(False, description="O_DIRECT.")
    block_size: Size = Field(64 * 1024, ge=8, le=2**30, description="Bytes of one write or read, at most.")
    round_to: Size | None = Field(
        None, ge=1, le=2**30, description="Sizes are rounded up to a multiple of this; by default 1, with direct 4k."
    )
    drop_caches: bool = Field(False, description="Empty the kernel's caches between phases; needs root.")
    verify: bool = Field(True, description="Compare what is read with what was written.")
    phase_limit: Duration | None = Field(None, gt=0, description="A phase ends after this time, with fewer files.")

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        for number, phase in enumerate(self.phases):
            if phase in self.phases[:number]:
                raise OptionError(f"the phase {phase} is listed twice", "phases", number)
            if phase == "create" and number > 0:
                raise OptionError("create is the first phase: before it there are no files", "phases", number)
            if phase == "delete" and number < len(self.phases) - 1:
                raise OptionError("delete is the last phase: after it there are no files", "phases", number)
        check_directories(self.directories, self.workers)
        if self.block_size % 8:
            raise OptionError(f"{self.block_size} is no multiple of 8 bytes", "block_size")
        if self.direct and self.granule % 512:
            raise OptionError(f"with direct, {self.granule} must be a multiple of 512 bytes", "round_to")
        if self.direct and self.block_size % self.granule:
            least = size_text(self.granule)
            raise OptionError(f"with direct, this must be a multiple of {least}, as sizes are (round_to)", "block_size")
        if self.workers > self.files:
            raise OptionError(f"{self.workers} workers for {self.files} files: take fewer workers", "workers")
        return self

    @property
    def granule(self) -> int:
        return self.round_to or (_BLOCK if self.direct else 1)

    def declares(self) -> tuple[MetricSpec, ...]:
        return declared(self.phases, self.fsync, end_sync=self.end_sync)

    def needs(self) -> Needs:
        return Needs(root="dropping caches between phases") if self.drop_caches else Needs()

    def space(self) -> int:
        """What is written, which no file system can hold in less, unless it compresses: contents can't be compressed.

        With a limit of time nobody knows how many files there will be.
        """
        return 0 if self.phase_limit is not None else int(self.files * self.size.mean())

    def work(self) -> Work | None:
        if self.phase_limit is not None:
            return None
        passes = sum(phase in ("create", "read") for phase in self.phases)
        waits = {"none": 0, "directory": 2}.get(self.fsync, 1)
        return Work(int(self.files * self.size.mean()) * max(passes, 1), self.files * waits)

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: files are made once, and all are measured" if warm_up else ""

    def spec(self, root: str, seed: int) -> dict[str, Any]:
        return {
            **self.model_dump(include=_AS_WRITTEN),
            "root": root,
            "sizes": self.size.spec(),
            "granule": self.granule,
            "block": self.block_size,
            "tree": self.directories.model_dump(),
            "phase_limit_ns": None if self.phase_limit is None else round(self.phase_limit * 1e9),
            "seed": seed,
        }

    async def prepare(self, place: RunContext) -> None:
        root = _root(place)
        await place.node.run(["rm", "-rf", "--", root])  # an earlier trial's, where stacks are kept
        notes = [note for note in (await self._does_not_fit(place), self.leaves_out(place.warm_up)) if note]
        if notes:
            await place.node.write(f"{place.folder}/{NOTES}", "".join(f"{note}\n" for note in notes).encode())
        if "create" in self.phases:
            return
        unmeasured = {"phases": ["create"], "fsync": "none", "end_sync": True, "phase_limit_ns": None}
        launch = await self._written(place, "layout.json", unmeasured)
        ended = await place.node.run(launch.argv, cwd=launch.cwd, check=False)
        if not ended.ok:
            raise_failure(ended.stdout, "layout")
            ended.check(place.node.name)

    async def launch(self, place: RunContext) -> Launch:
        return await self._written(place, "spec.json", {})

    async def _written(self, place: RunContext, name: str, changes: dict[str, Any]) -> Launch:
        spec = self.spec(_root(place), place.seed) | changes
        await place.node.write(f"{place.folder}/{name}", orjson.dumps(spec, option=orjson.OPT_INDENT_2))
        # The agent itself, which is there for as long as it runs, though in a guest its file is gone.
        return Launch((_AGENT, "files", name), cwd=place.folder)

    async def _does_not_fit(self, place: RunContext) -> str:
        listing = await place.node.run(["df", "--output=avail,iavail", "-B1", "--", place.path], check=False)
        fields = listing.stdout.split()[-2:] if listing.ok else []
        if len(fields) < 2 or not all(field.isdigit() for field in fields):
            return ""
        space, inodes = map(int, fields)
        made = self.files + self.directories.count(self.workers)
        held = self.files * math.ceil(self.size.mean() / _BLOCK) * _BLOCK
        if self.phase_limit is not None:
            return ""
        if held > space:
            return f"the files take up {size_text(held)}, but only {size_text(space)} is free: they may not fit"
        if 0 < inodes < made:  # 0: there is no limit, or none that is known
            return f"{made} files and directories are made, but only {inodes} inodes are free: they may not fit"
        return ""

    def parse(self, raw: Path) -> Measurements:
        return read_results(raw, raw / NOTES)


def _root(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/storm-{place.name}"
