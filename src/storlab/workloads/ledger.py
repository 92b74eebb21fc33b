"""Workload ``ledger``: durable commits of small records, one after another, that can be asked for after a power cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import msgspec
import polars as pl
from msgspec import Meta, Struct
from pydantic import Field, model_validator

from storlab.base.errors import ParseError
from storlab.base.units import Duration, Size, power_of_two
from storlab.layers.resources import Dir, Resource
from storlab.measurements import HISTOGRAM_COLUMNS, Measurements, metric_frame
from storlab.metrics import PERCENTILES, MetricSpec, by_name, latencies, percentile_name
from storlab.nodes.needs import Needs
from storlab.percentiles import percentiles
from storlab.workloads import ledger_program
from storlab.workloads.base import (
    ELAPSED,
    Damage,
    Launch,
    Pages,
    RunContext,
    Witness,
    bytes_of,
    elapsed_values,
    read_exit,
    unfinished,
)

COMMITS = (
    MetricSpec("commit.count", "1", quantity="operations"),
    MetricSpec("commit.rate", "1/s", "higher", quantity="throughput", by_job=False),
    *latencies("commit.latency", "commit.count"),
)


# What the ledger's program left: ``commits.json``. A guest's root may have written it, so it is bounded.

NAME = "commits.json"
_MOST = 64 * 1024**2  # bytes
_NS = 1e-9
_LATENCY = "commit.latency"


class Commits(Struct, frozen=True, forbid_unknown_fields=True):
    """How long all of them took, and each, in s."""

    elapsed: Annotated[float, Meta(gt=0, le=1e9)]
    latencies: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(min_length=1)]


def read_results(raw: Path) -> Measurements:
    """All that one trial left. Raises ``TimedOut``, ``CommandFailed``, ``ParseError``."""
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if not ended.ok:
        raise unfinished("the ledger", ended, said)
    commits = read_commits(bytes_of(raw / NAME), str(raw / NAME))
    # Bins one nanosecond wide lose nothing.
    counts = sorted(Counter(round(each / _NS) for each in commits.latencies).items())
    rows = [(None, _LATENCY, ns * _NS, (ns + 1) * _NS, count) for ns, count in counts]
    histogram = pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")
    count = len(commits.latencies)
    numbers = {
        "commit.count": count,
        "commit.rate": count / commits.elapsed,
        f"{_LATENCY}.mean": sum(commits.latencies) / count,
        f"{_LATENCY}.min": min(commits.latencies),
        f"{_LATENCY}.max": max(commits.latencies),
    }
    found = percentiles(histogram, PERCENTILES)
    numbers |= {f"{_LATENCY}.{percentile_name(each)}": value for each, value in found.items()}
    specs = by_name(COMMITS)
    values = [specs[name].value(number) for name, number in numbers.items()]
    return Measurements(metric_frame([*values, *elapsed_values(ended)]), histograms=histogram)


def read_commits(data: bytes, source: str = "") -> Commits:
    if len(data) > _MOST:
        raise ParseError(f"{len(data)} bytes, and at most {_MOST} are read", source)
    try:
        return msgspec.json.decode(data, type=Commits)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ParseError(re.sub(r"\s+", " ", str(error)), source) from None


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
        await place.node.write(path, Path(ledger_program.__file__).read_bytes())
        about = {"root": _root(place), "commit": self.commit, "size": self.record_size, "slots": self.slots}
        return "python3", "-I", path, action, json.dumps(about | {"doublewrite": self.doublewrite, **asked})


def _root(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/ledger-{place.name}"
