"""Probe ``zfs``: what ZFS counts of its intent log, transactions, transaction groups, cache, allocations and queues.

Files of ``/proc/spl/kstat`` on the machine that has the pools, read at even intervals. All but the history of a pool's
transaction groups are of the kernel's module, so of all pools of the machine together. The queues of a pool's disks are
known to its ioctl alone, so ``zpool iostat`` tells them, as often.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.base.errors import ParseError
from storlab.base.text import few
from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Evidence, MetricSpec, Value
from storlab.nodes.agent import steps
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.sampling import NAME, Snapshot, around, each_sample, sampling
from storlab.probes.subject import End, Kind
from storlab.probes.zfs import iostat
from storlab.tools.zfs import Counters, TransactionGroup, parse_counters, parse_transaction_groups

_STATS, _QUEUES = "/proc/spl/kstat/zfs", "/proc/spl/kstat/taskq"
_VOLUMES = "zvol"  # how the names of the queues of volumes begin; there is one for every few CPUs
_SHOWN = 5


@dataclass(frozen=True)
class _Counted:
    """A metric that is what these counters of one file have grown by, all together."""

    spec: MetricSpec
    file: str
    names: tuple[str, ...]


def _counted(file: str, names: str, metric: str, noun: str, unit: str = "1", evidence: Evidence = "") -> _Counted:
    return _Counted(MetricSpec(metric, unit, noun=noun, evidence=evidence), file, tuple(names.split()))


_LOGGED = "zil_itx_metaslab_normal_{0} zil_itx_metaslab_slog_{0}"
_COUNTED = (
    _counted("zil", "zil_commit_count", "zil.commits", "ZIL commits", evidence="rare"),
    _counted("zil", "zil_commit_writer_count", "zil.flushes", "flushes of the ZIL", evidence="rare"),
    _counted("zil", "zil_itx_count", "zil.records", "records in the ZIL"),
    _counted("zil", _LOGGED.format("bytes"), "zil.record.bytes", "of records in the ZIL", "B"),
    _counted("zil", _LOGGED.format("write"), "zil.write.bytes", "written to the ZIL", "B"),
    _counted("zil", "zil_itx_indirect_bytes", "zil.indirect.bytes", "written in place for the ZIL", "B"),
    _counted("dmu_tx", "dmu_tx_assigned", "tx.count", "transactions of ZFS", evidence="shared"),
    _counted("dmu_tx", "dmu_tx_dirty_delay", "tx.delayed", "transactions delayed by dirty data", evidence="rare"),
    _counted("dmu_tx", "dmu_tx_dirty_over_max", "tx.stopped", "transactions stopped by dirty data", evidence="rare"),
    _counted("dmu_tx", "dmu_tx_wrlog_delay", "tx.log-delayed", "transactions delayed by the ZIL", evidence="rare"),
    _counted(
        "dmu_tx", "dmu_tx_dirty_throttle dmu_tx_memory_reserve dmu_tx_memory_reclaim", "tx.memory-delayed",
        "transactions delayed by memory", evidence="rare",
    ),
    _counted("arcstats", "hits", "arc.hits", "hits of the ARC", evidence="shared"),
    _counted("arcstats", "misses", "arc.misses", "misses of the ARC", evidence="shared"),
    _counted(
        "metaslab_stats", "too_many_tries", "metaslab.given-up", "searches for space given up", evidence="rare",
    ),
    _counted("metaslab_stats", "try_hard", "metaslab.hard-tries", "allocations that tried all space", evidence="rare"),
    _counted("metaslab_stats", "reload_tree", "metaslab.reloads", "reloads of a tree of free space", evidence="rare"),
    _counted(_VOLUMES, "tasks_executed", "zvol.tasks", "tasks of the volumes' queues"),
)  # fmt: skip
_STATES = {
    "arc.size": ("arcstats", "size", MetricSpec("arc.size.max", "B", across="max", evidence="none")),
    "zvol.queue": (
        _VOLUMES, "tasks_total",
        MetricSpec("zvol.queue.max", "1", across="max", tail=True, noun="tasks waiting for volumes at most"),
    ),
}  # fmt: skip
"""What is a level, and no count: its series, file and counter, and the metric that is the largest of the samples."""
_FILES = tuple(dict.fromkeys(each.file for each in _COUNTED if each.file != _VOLUMES))

_GROUPS = MetricSpec("txg.count", "1", noun="transaction groups", evidence="rare")
_WRITTEN = MetricSpec("txg.write.bytes", "B", noun="written by transaction groups")
_MEANS = {
    part: MetricSpec(f"txg.{part}.mean", unit, across="merge", statistic="mean", weight="txg.count", noun=noun)
    for part, unit, noun in (
        ("open", "s", "for which a transaction group was open"),
        ("quiesce", "s", "for which a transaction group was quiesced"),
        ("wait", "s", "for which a transaction group waited to be synced"),
        ("sync", "s", "to sync a transaction group"),
        ("dirty", "B", "of dirty data in a transaction group"),
    )
}
_MOST = {
    part: MetricSpec(f"txg.{part}.max", unit, across="max", statistic="max")
    for part, unit in (("sync", "s"), ("dirty", "B"))
}


class ZfsProbe(Probe):
    """Watches ZFS itself on each machine that has a pool of a stack: its log, transactions, cache and queues."""

    kind: ClassVar[str] = "zfs"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})  # most counters are of all pools together
    metrics: ClassVar[tuple[MetricSpec, ...]] = (
        *(each.spec for each in _COUNTED), *(spec for *_, spec in _STATES.values()),
        _GROUPS, _WRITTEN, *_MEANS.values(), *_MOST.values(), *iostat.METRICS, *iostat.HISTOGRAM_METRICS,
    )  # fmt: skip

    interval: Duration = Field(2.0, ge=0.05, description="Between two samples, of about 25 KiB each.")
    queues: bool = Field(
        True, description="Ask `zpool iostat -lq` as well, for queues of the pools' disks and times in them."
    )

    histograms: bool = Field(
        False,
        description="Ask `zpool iostat -w` and `-r` before and after the load, for histograms of times in the queues "
        "and the share of aggregated requests: four commands, of a second each in an emulated guest.",
    )

    def declares(self) -> tuple[MetricSpec, ...]:
        left_out = () if self.histograms else iostat.HISTOGRAM_METRICS
        return tuple(spec for spec in self.metrics if spec not in left_out)

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        return "pools" in kinds

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        (queues,) = await context.node.carry_out(steps.names(_QUEUES), go_on=True)
        volumes = [f"{_QUEUES}/{name}" for name in sorted(queues.entries or ()) if name.startswith(_VOLUMES)]
        paths = [*(f"{_STATS}/{file}" for file in _FILES), *map(_history, context.subject.pools), *volumes]
        async with AsyncExitStack() as both:
            await both.enter_async_context(sampling(context.node, paths, self.interval, context.raw))
            if self.queues and context.subject.pools:
                await both.enter_async_context(iostat.asking(context, self.interval))
            if self.histograms and context.subject.pools:
                await both.enter_async_context(iostat.looking_twice(context))
            yield

    def parse(self, record: ProbeRecord) -> Measurements:
        window, watched = record.window, _Watched(str(record.raw / NAME))
        for snapshot in each_sample(record.raw):
            watched.add(snapshot, record.subject.pools)
        looks = around(sorted(watched.looks, key=lambda look: look.t), window)
        if len(looks) < 2:
            return Measurements(found=(TooFewSamples(self.kind),))
        groups = {key: each for key, each in sorted(watched.groups.items()) if window.start <= each.t <= window.end}
        values = [*_grown(looks, watched.source), *_largest(looks)]
        if watched.histories and not watched.forgetful:
            values += _of_groups([each.of for each in groups.values()])
        queues = iostat.read(record.raw, window)
        found = iostat.read_histograms(record)
        values += [*iostat.values(queues), *iostat.histogram_values(found)]
        points = [*_rates(looks), *_levels(looks), *_group_points(list(groups.values())), *iostat.points(queues)]
        shifted = [(None, name, t - window.start, value, unit) for t, name, value, unit in points]
        series = pl.DataFrame(shifted, schema=SERIES_COLUMNS, orient="row")
        warnings = (*_warnings(watched, looks, groups), *queues.warnings)
        waits = iostat.wait_histograms(found.get("waits", {}))
        return Measurements(metric_frame(values), series=series, histograms=waits, warnings=warnings)


def _history(pool: str) -> str:
    return f"{_STATS}/{pool}/txgs"


@dataclass(frozen=True)
class _Look:
    """One sample: seconds on the node's monotonic clock; by file when its counters began and what they were."""

    t: float
    files: Mapping[str, Counters]


@dataclass(frozen=True)
class _Group:
    """A transaction group, and when it was on the disk: seconds on the node's monotonic clock."""

    t: float
    of: TransactionGroup


@dataclass
class _Watched:
    """All samples, without what no metric needs: a history has the same transaction groups as the one before."""

    source: str
    looks: list[_Look] = field(default_factory=list)
    groups: dict[tuple[str, int], _Group] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    histories: dict[str, int] = field(default_factory=dict)  # pool → how many transaction groups its history has

    @property
    def forgetful(self) -> bool:
        return not all(self.histories.values())

    def add(self, snapshot: Snapshot, pools: Sequence[str]) -> None:
        """One more sample. Raises ``ParseError``."""
        texts = {f"{_STATS}/{file}": file for file in _FILES}
        files = {
            file: _needed(file, [(path, snapshot.texts[path])])
            for path, file in texts.items()
            if path in snapshot.texts
        }
        queues = [(path, text) for path, text in snapshot.texts.items() if path.startswith(_QUEUES)]
        if queues:
            files[_VOLUMES] = _needed(_VOLUMES, queues)
        for pool in pools:
            path = _history(pool)
            if path in snapshot.texts and files:
                clock = next(iter(files.values())).read / 1e9  # ZFS's, at this sample
                self._add_history(pool, path, snapshot, clock)
            elif path not in snapshot.texts:
                self.missing[path] = None
        self.missing |= dict.fromkeys(_path(file) for file in (*texts.values(), _VOLUMES) if file not in files)
        self.looks.append(_Look(snapshot.t, files))

    def _add_history(self, pool: str, path: str, snapshot: Snapshot, clock: float) -> None:
        history = parse_transaction_groups(snapshot.texts[path], path)
        self.histories[pool] = history.kept
        for group in history.committed:
            self.groups.setdefault((pool, group.number), _Group(snapshot.t - clock + group.ended, group))


def _path(file: str) -> str:
    return f"{_QUEUES}/{file}*" if file == _VOLUMES else f"{_STATS}/{file}"


_NEEDED = {
    file: frozenset(
        [name for each in _COUNTED if each.file == file for name in each.names]
        + [name for where, name, _ in _STATES.values() if where == file]
    )
    for file in (*_FILES, _VOLUMES)
}


def _needed(file: str, texts: Sequence[tuple[str, str]]) -> Counters:
    found = [parse_counters(text, path) for path, text in texts]
    names = [name for name in _NEEDED[file] if all(name in each.numbers for each in found)]
    first = found[0]
    return Counters(first.began, first.read, {name: sum(each.numbers[name] for each in found) for name in names})


def _growth(before: _Look, after: _Look, each: _Counted) -> int | None:
    old, new = before.files.get(each.file), after.files.get(each.file)
    if old is None or new is None or not all(name in old.numbers and name in new.numbers for name in each.names):
        return None
    return sum(new.numbers[name] - old.numbers[name] for name in each.names)


def _grown(looks: Sequence[_Look], source: str) -> Iterator[Value]:
    """Over the whole phase. Raises ``ParseError`` where counters restarted or ran backwards."""
    for before, after in (*pairwise(looks), (looks[0], looks[-1])):  # a file may be missing in between
        for file in before.files.keys() & after.files.keys():
            if before.files[file].began != after.files[file].began:
                raise ParseError(f"{_path(file)} restarted in the measured phase: ZFS was loaded again", source)
        for each in _COUNTED:
            if (_growth(before, after, each) or 0) < 0:
                raise ParseError(f"{_path(each.file)}: {each.names[0]} ran backwards", source)
    for each in _COUNTED:
        if (grown := _growth(looks[0], looks[-1], each)) is not None:
            yield each.spec.value(grown)


def _level(look: _Look, file: str, name: str) -> int | None:
    return look.files[file].numbers.get(name) if file in look.files else None


def _largest(looks: Sequence[_Look]) -> Iterator[Value]:
    for file, name, spec in _STATES.values():
        if found := [each for look in looks if (each := _level(look, file, name)) is not None]:
            yield spec.value(max(found))


_Point = tuple[float, str, float, str]  # t, metric, value, unit


def _rates(looks: Sequence[_Look]) -> Iterator[_Point]:
    for before, after in pairwise(looks):
        for each in _COUNTED:
            if (grown := _growth(before, after, each)) is not None and after.t > before.t:
                yield after.t, f"{each.spec.name}.rate", grown / (after.t - before.t), f"{each.spec.unit}/s"


def _levels(looks: Sequence[_Look]) -> Iterator[_Point]:
    for look in looks:
        for series, (file, name, spec) in _STATES.items():
            if (found := _level(look, file, name)) is not None:
                yield look.t, series, float(found), spec.unit


def _of_groups(groups: Sequence[TransactionGroup]) -> Iterator[Value]:
    yield _GROUPS.value(len(groups))
    yield _WRITTEN.value(sum(each.written for each in groups))
    if groups:
        for part, spec in _MEANS.items():
            yield spec.value(sum(getattr(each, part) for each in groups) / len(groups))
        for part, spec in _MOST.items():
            yield spec.value(max(getattr(each, part) for each in groups))


def _group_points(groups: Sequence[_Group]) -> Iterator[_Point]:
    for each in sorted(groups, key=lambda group: group.t):
        yield each.t, "txg.sync", each.of.sync, "s"
        yield each.t, "txg.dirty", float(each.of.dirty), "B"


def _warnings(watched: _Watched, looks: Sequence[_Look], groups: Mapping[tuple[str, int], _Group]) -> Iterator[str]:
    missing = [
        *watched.missing,
        *(
            f"{name} in {_path(each.file)}"
            for each in _COUNTED
            for name in each.names
            if each.file in looks[-1].files and name not in looks[-1].files[each.file].numbers
        ),
    ]
    if missing:
        yield f"zfs: this ZFS lacks {few(missing, _SHOWN)}; what they count is left out"
    if watched.forgetful:
        yield "zfs: no history of transaction groups is kept: the module's parameter zfs_txg_history is 0"
    elif watched.histories and not groups:
        yield "zfs: no transaction group came to an end in the measured phase, so there are no times of any"
    lost = sum(b[1] - a[1] - 1 for a, b in pairwise(groups) if a[0] == b[0])
    if lost:
        yield f"zfs: {lost} transaction groups came and went between two samples: choose a shorter interval"
