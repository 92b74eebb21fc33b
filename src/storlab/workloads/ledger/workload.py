"""Workload ``ledger``: durable commits of small records, one after another, in the directory under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from pydantic import Field, model_validator

from storlab.errors import ParseError
from storlab.layers.resources import Dir, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.units import Duration, Size, power_of_two
from storlab.workloads.base import ELAPSED, Launch, RunContext
from storlab.workloads.ledger import program
from storlab.workloads.ledger.declared import COMMITS
from storlab.workloads.ledger.results import read_results
from storlab.workloads.witness import Damage, Pages, Witness

_PROGRAM = "ledger.py"
_BLOCK = 4096  # bytes: what direct I/O takes of any file system here
_PATIENCE = 60.0  # s, to look for all records


class LedgerWorkload(Witness):
    """Commits records, each durable before the next: what a crash check looks for afterwards."""

    kind: ClassVar[str] = "ledger"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir,)

    commit: Literal["append", "rename", "overwrite"] = Field(
        "append",
        description="`append`: to one file, fdatasync. `rename`: a new file, fsync, renamed over an old one, fsync of "
        "the directory. `overwrite`: one of a few pages in place, by direct I/O, fdatasync, as databases do.",
    )
    record_size: Annotated[Size, power_of_two("size of a record", 512, 1024 * 1024)] = Field(
        4096, description="Size of each record: a power of two from 512 to 1M; with `overwrite` from 4k on."
    )
    slots: int = Field(64, ge=1, le=4096, description="Files or pages that `rename` and `overwrite` go through.")
    doublewrite: bool = Field(
        False, description="With `overwrite`: write each page durably elsewhere before, as InnoDB does."
    )
    runtime: Duration = Field(10.0, gt=0, description="How long.")

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.commit == "overwrite" and self.record_size < _BLOCK:
            raise ValueError("overwrite writes past the page cache, and so pages of 4k or more: set record_size")
        if self.doublewrite and self.commit != "overwrite":
            raise ValueError(f'doublewrite protects pages that are overwritten: commit = "{self.commit}" has none')
        return self

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*COMMITS, *ELAPSED)

    def needs(self) -> Needs:
        return Needs(programs=("python3",))

    def space(self) -> int:
        return 0 if self.commit == "append" else self.slots * self.record_size

    def duration(self, warm_up: float) -> float:
        return self.runtime

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: all commits are measured" if warm_up else ""

    async def prepare(self, place: RunContext) -> None:
        await place.node.run(["rm", "-rf", "--", _root(place)])  # an earlier trial's, where stacks are kept

    async def launch(self, place: RunContext) -> Launch:
        argv = await self._program(place, "write", runtime=self.runtime)
        return Launch(argv, env={"LC_ALL": "C.UTF-8"}, cwd=place.folder)

    def parse(self, raw: Path) -> Measurements:
        return read_results(raw)

    def acknowledged(self, line: bytes) -> int | None:
        return int(line) if line.isdigit() and len(line) < 20 else None

    async def broken(self, place: RunContext, acknowledged: int) -> Damage | None:
        argv = await self._program(place, "verify", acknowledged=acknowledged)
        ended = await place.node.run(argv, timeout=_PATIENCE)
        try:
            found = msgspec.json.decode(ended.stdout, type=tuple[Literal["lost", "torn"], str] | None)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            raise ParseError(f"not what the ledger prints: {ended.stdout[:80]!r}") from None
        return None if found is None else Damage(*found)

    def pages(self) -> Pages | None:
        return Pages(self.record_size, self.doublewrite) if self.commit == "overwrite" else None

    async def _program(self, place: RunContext, action: str, **asked: float) -> tuple[str, ...]:
        path = f"{place.folder}/{_PROGRAM}"
        await place.node.write(path, Path(program.__file__).read_bytes())
        about = {"root": _root(place), "commit": self.commit, "size": self.record_size, "slots": self.slots}
        return "python3", "-I", path, action, json.dumps(about | {"doublewrite": self.doublewrite, **asked})


def _root(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/ledger-{place.name}"
