"""What ``zpool iostat -lq`` prints while a load runs: how full the queues of pools' disks are, and how long one waits.

ZFS keeps histograms of these times, in powers of two, and prints means over each interval. So a mean over the load is
that of its intervals, weighted by their operations. Lengths of queues are those at the end of each interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import get_args

import polars as pl

from storlab.base.errors import CommandFailed, ParseError
from storlab.base.reading import lines_of, read_file
from storlab.base.waiting import to_its_end
from storlab.layers.server.running import ServerLog
from storlab.measurements import HISTOGRAM_COLUMNS
from storlab.metrics import MetricSpec, Value, percentiles_of
from storlab.percentiles import percentiles_of_bins
from storlab.probes.base import ProbeContext, ProbeRecord, Window
from storlab.tools.zfs import (
    DIRECTIONS,
    KINDS,
    MAINTENANCE,
    QUEUES,
    STAGES,
    Bins,
    PoolLook,
    What,
    between,
    parse_histograms,
    parse_pool_look,
    wait_name,
)

NAME, SAID = "zpool-iostat.txt", "zpool-iostat.err"
_PATIENCE = 10.0  # s, for the first line: an emulated guest takes a second or two
_WHERE = {
    "total": "",
    "disk": " at the disk",
    "sync-queue": " in the synchronous queue",
    "async-queue": " in the asynchronous queue",
}

_DONE = {
    way: MetricSpec(f"vdev.{way}s", "1", noun=f"{way}s of the pool's disks", evidence="none") for way in DIRECTIONS
}
_WAITS = {
    wait_name(way, stage): MetricSpec(
        f"vdev.{way}.{stage}.wait.mean", "s", across="merge", statistic="mean", weight=f"vdev.{way}s",
        noun=f"for a {way} of the pool's disks{_WHERE[stage]}",
    )
    for way in DIRECTIONS
    for stage in STAGES
} | {
    what: MetricSpec(f"vdev.{what}.wait.mean", "s", across="mean", statistic="mean", evidence="none")
    for what in MAINTENANCE
}  # fmt: skip
_LENGTHS = {
    (queue, state): MetricSpec(
        f"vdev.{queue}.{state}.mean", "1", across="mean", statistic="mean",
        noun=f"requests {state} in the queue {queue} of the pool's disks",
        evidence="none" if queue in MAINTENANCE else "",
    )
    for queue in QUEUES
    for state in ("waiting", "active")
}  # fmt: skip
METRICS = (*_DONE.values(), *_WAITS.values(), *_LENGTHS.values())


@asynccontextmanager
async def asking(context: ProbeContext, interval: float) -> AsyncIterator[None]:
    """Ask for as long as the context lasts. What ``zpool`` says of a failure is kept, and becomes a warning."""
    told, said, first = ServerLog(context.raw / NAME), ServerLog(context.raw / SAID), asyncio.Event()

    def take(payload: bytes, at: float) -> None:
        told.take(payload, at)
        first.set()

    argv = ["zpool", "iostat", "-Hplq", *context.subject.pools, f"{interval:g}"]
    try:
        process = await context.node.start(argv, on_output=take, on_stderr=said.take)
    except CommandFailed as error:
        said.take(f"{error}\n".encode(), 0.0)
        said.close()
        yield
        return
    process.when_ended(lambda _: first.set())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await first.wait()
        yield
    finally:
        await to_its_end(process.end())
        told.close()
        said.close()


@dataclass(frozen=True)
class Interval:
    """A line about one pool; it began and ended at these times: seconds on the node's monotonic clock."""

    began: float
    ended: float
    look: PoolLook

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Intervals:
    """Those of the measured phase."""

    found: tuple[Interval, ...] = ()
    warnings: tuple[str, ...] = ()


def read(raw: Path, window: Window) -> Intervals:
    """Those whose middle lies in the window; none where nobody asked. Raises ``ParseError``."""
    if not (raw / NAME).exists() and not (raw / SAID).exists():
        return Intervals()
    found = tuple(
        each for each in _intervals(raw / NAME) if window.start <= (each.began + each.ended) / 2 <= window.end
    )
    if found:
        return Intervals(found)
    said = next((line for _, line in _lines(raw / SAID)), "it printed too little: choose a shorter interval")
    return Intervals(warnings=(f"zfs: no lengths of queues from zpool iostat: {said}",))


def _intervals(path: Path) -> Iterator[Interval]:
    """The first line of each pool is about all the time since its import: only the beginning of the second."""
    last: dict[str, float] = {}
    for at, (t, line) in enumerate(_lines(path), start=1):
        look = parse_pool_look(line, str(path), at)
        began = last.get(look.pool)
        if began is not None and t > began:
            yield Interval(began, t, look)
        last[look.pool] = t


def _lines(path: Path) -> Iterator[tuple[float, str]]:
    """Whole lines, with their times. Raises ``ParseError``."""
    try:
        for at, line in enumerate(lines_of(path), start=1):
            if not line.endswith(b"\n"):
                return
            time, blank, text = line.decode(errors="replace").rstrip("\n").partition(" ")
            try:
                if not blank:
                    raise ValueError
                t = float(time)
                if not isfinite(t):
                    raise ValueError
            except ValueError:
                raise ParseError("does not begin with a time", str(path), at) from None
            yield t, text
    except FileNotFoundError:
        return
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def values(intervals: Intervals) -> Iterator[Value]:
    """Over the whole phase, of all pools together: operations and lengths added up, times weighted by operations."""
    found = intervals.found
    if not found:
        return
    for way, spec in _DONE.items():
        yield spec.value(sum(each.look.operations[way] * each.seconds for each in found))
    for name, spec in _WAITS.items():
        way = name.partition(".")[0]
        weighed = [
            (each.look.waits[name], each.look.operations.get(way, 1) * each.seconds)
            for each in found
            if name in each.look.waits
        ]
        if total := sum(weight for _, weight in weighed):
            yield spec.value(sum(wait * weight for wait, weight in weighed) / total)
    pools = {each.look.pool for each in found}
    for (queue, state), spec in _LENGTHS.items():
        lengths = [[_length(each.look, queue, state) for each in found if each.look.pool == pool] for pool in pools]
        known = [[length for length in of_pool if length is not None] for of_pool in lengths]
        if any(known):
            yield spec.value(sum(sum(of_pool) / len(of_pool) for of_pool in known if of_pool))


def _length(look: PoolLook, queue: str, state: str) -> int | None:
    return (look.waiting if state == "waiting" else look.active).get(queue)


def points(intervals: Intervals) -> Iterator[tuple[float, str, float, str]]:
    """Time, series, value, unit: lengths of queues at the end of each interval, times over it; of all pools."""
    for t in sorted({each.ended for each in intervals.found}):
        looks = [each.look for each in intervals.found if each.ended == t]
        for queue, state in _LENGTHS:
            if lengths := [length for look in looks if (length := _length(look, queue, state)) is not None]:
                yield t, f"vdev.{queue}.{state}", float(sum(lengths)), "1"
        for name, spec in _WAITS.items():
            if waits := [look.waits[name] for look in looks if name in look.waits]:
                yield t, spec.name.removesuffix(".mean"), sum(waits) / len(waits), "s"


# How long requests to a pool's disks waited, and which were made of several: ``zpool iostat -w`` and ``-r``.
#
# ZFS counts these from the import of a pool on. So they are asked for twice, right before the load and after it, and
# what came in between is that of the load: nothing is sampled.

_MOST = 1 << 20  # bytes of a pool's histogram; it has 5,000
_OPTIONS: dict[What, str] = {"waits": "-w", "sizes": "-r"}
_PERCENTILES = (50.0, 99.0)
_WAIT_TIMES = {
    column: MetricSpec(f"vdev.{column}.wait", "s", "lower", "merge", "latency")
    for column in (*(wait_name(way, stage) for way in DIRECTIONS for stage in STAGES), *MAINTENANCE)
}
_OF_WAITS = {column: percentiles_of(spec.name, _PERCENTILES) for column, spec in _WAIT_TIMES.items()}
_AGGREGATED = {
    queue: MetricSpec(
        f"vdev.{queue}.aggregated.share", "1", across="mean", domain="share", evidence="none",
        noun=f"of the requests of the queue {queue} made of several",
    )
    for queue in QUEUES
}  # fmt: skip
HISTOGRAM_METRICS = (
    *_WAIT_TIMES.values(),
    *(spec for specs in _OF_WAITS.values() for spec in specs),
    *_AGGREGATED.values(),
)


@asynccontextmanager
async def looking_twice(context: ProbeContext) -> AsyncIterator[None]:
    await _look(context, "before")
    yield
    await _look(context, "after")


async def _look(context: ProbeContext, when: str) -> None:
    for what, option in _OPTIONS.items():
        argv = ["zpool", "iostat", "-Hp", option, *context.subject.pools]
        ended = await context.node.run(argv, check=False)
        if ended.ok:
            (context.raw / f"{what}-{when}.txt").write_bytes(ended.stdout)


def read_histograms(record: ProbeRecord) -> dict[What, Bins]:
    """What the load did. Without what was not asked for, or not answered. Raises ``ParseError``."""
    found: dict[What, Bins] = {}
    for what in get_args(What):
        paths = [record.raw / f"{what}-{when}.txt" for when in ("before", "after")]
        if all(path.exists() for path in paths):
            before, after = (parse_histograms(_text(path), what, str(path)) for path in paths)
            found[what] = between(before, after, str(paths[1]))
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST).decode(errors="replace")
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def wait_histograms(bins: Bins) -> pl.DataFrame:
    rows = [
        (None, _WAIT_TIMES[column].name, lower / 1e9, 2 * lower / 1e9, count)
        for (column, lower), count in sorted(bins.items())
    ]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def histogram_values(found: dict[What, Bins]) -> Iterator[Value]:
    waits = found.get("waits", {})
    for column, specs in _OF_WAITS.items():
        bins = [(at / 1e9, 2 * at / 1e9, count) for (name, at), count in sorted(waits.items()) if name == column]
        if bins:
            for spec, seconds in zip(specs, percentiles_of_bins(bins, _PERCENTILES).values(), strict=True):
                yield spec.value(seconds)
    for queue, spec in _AGGREGATED.items():
        single, several = (
            sum(count for (name, _), count in found.get("sizes", {}).items() if name == f"{queue}.{kind}")
            for kind in KINDS
        )
        if single or several:
            yield spec.value(several / (single + several))
