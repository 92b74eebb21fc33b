"""Probes of a machine's memory: ``fragmentation`` and ``folios``.

``fragmentation``: whether free memory is in pieces, and what the kernel does about it, each second.
Both indices follow from ``/proc/buddyinfo``, as the kernel computes them for ``unusable_index`` and ``extfrag_index``
in ``/sys/kernel/debug/extfrag`` (``fill_contig_page_info`` and ``__fragmentation_index`` in mm/vmstat.c), so neither
debugfs nor root is needed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import polars as pl
from pydantic import Field, field_validator

from storlab.base.amounts import size_text
from storlab.base.errors import ParseError
from storlab.base.units import Duration
from storlab.findings.runs import TooFewSamples
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.needs import Needs
from storlab.probes.agent import AgentProbe
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.lines import Count, Lines
from storlab.probes.procfs import is_number
from storlab.probes.sampling import around, read_samples, sampling
from storlab.probes.subject import Kind

_BUDDIES, _VMSTAT = "/proc/buddyinfo", "/proc/vmstat"
_ZONE = re.compile(r"^Node +(\d{1,5}), zone +(\S{1,32}) ([ \d]{1,1000})$", re.MULTILINE)

_UNUSABLE = MetricSpec(
    "unusable.order-{order}", "1", across="max", noun="of free memory in pieces below order {order}", domain="share"
)
_INDEX = MetricSpec("extfrag.order-{order}", "1", "lower", "max", evidence="none", domain="share")
_FREE = MetricSpec("free.blocks", "1", across="sum", evidence="none")
_COUNTED = {
    ("compact_stall",): MetricSpec(
        "compaction.stalls", "1", "lower", noun="times a task had to compact memory", evidence="rare"
    ),
    ("compact_fail",): MetricSpec("compaction.failures", "1", "lower", evidence="none"),
    ("compact_migrate_scanned", "compact_free_scanned"): MetricSpec(
        "compaction.scanned", "1", "lower", noun="pages scanned to compact memory", evidence="shared"
    ),
    ("allocstall_",): MetricSpec(
        "reclaim.stalls", "1", "lower", noun="times a task had to reclaim memory", evidence="rare"
    ),
    ("pswpin",): MetricSpec("swap.in", "1", "lower", noun="pages read from swap", evidence="shared"),
    ("pswpout",): MetricSpec("swap.out", "1", "lower", noun="pages written to swap", evidence="shared"),
}
"""Counters of vmstat → what they add up to. One that ends in an underscore stands for all that begin so."""


class FragmentationProbe(Probe):
    """Watches how far the free memory of each machine is in pieces, and how often tasks had to make room."""

    kind: ClassVar[str] = "fragmentation"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (_UNUSABLE, _INDEX, _FREE, *_COUNTED.values())

    interval: Duration = Field(1.0, gt=0, description="Between two samples.")
    orders: tuple[int, ...] = Field(
        (2, 4, 9),
        min_length=1,
        max_length=10,
        description="Sizes that are asked about: an order n is 2^n pages. The default is 16 KiB, 64 KiB and 2 MiB in "
        "pages of 4 KiB.",
    )

    @field_validator("orders")
    @classmethod
    def _are_orders(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        for order in value:
            if not 1 <= order <= 20:
                raise ValueError(f"{order} is not a valid order: from 1, two pages, to 20")
        return tuple(sorted(set(value)))

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return sampling(context.node, (_BUDDIES, _VMSTAT), self.interval, context.raw)

    def parse(self, record: ProbeRecord) -> Measurements:
        window = record.window
        looks = around(read_samples(record.raw), window)
        memory = [(each.t, zones) for each in looks if (zones := parse_buddyinfo(each.texts.get(_BUDDIES, "")))]
        if not memory:
            return Measurements(warnings=("fragmentation: the kernel does not show its free memory (/proc/buddyinfo)",))
        shares = {order: [(t, unusable(zones, order)) for t, zones in memory] for order in self.orders}
        series = [
            (None, _UNUSABLE.name.format(order=order), t - window.start, share, "1")
            for order, points in shares.items()
            for t, share in points
        ]
        values = [
            _UNUSABLE.value(sum(share for _, share in points) / len(points), order=str(order))
            for order, points in shares.items()
        ]
        values += [_INDEX.value(max(index(each, n) for _, each in memory), order=str(n)) for n in self.orders]
        values.append(_FREE.value(sum(sum(zone.blocks) for zone in memory[-1][1])))
        counted = [parse_vmstat(each.texts.get(_VMSTAT, "")) for each in looks]
        values += _between(counted[0], counted[-1])
        frame = pl.DataFrame(series, schema=SERIES_COLUMNS, orient="row")
        few = () if len(looks) > 1 else (TooFewSamples(self.kind),)
        return Measurements(metrics=metric_frame(values), series=frame, found=few)


class Zone(NamedTuple):
    """Free memory of one zone: how many free blocks there are of each order, from 0."""

    node: int
    name: str
    blocks: tuple[int, ...]

    @property
    def pages(self) -> int:
        return sum(count << order for order, count in enumerate(self.blocks))

    def suitable(self, order: int) -> int:
        """Blocks of this order that can be had without moving anything."""
        return sum(count << (at - order) for at, count in enumerate(self.blocks) if at >= order)


def parse_buddyinfo(text: str) -> list[Zone]:
    """``/proc/buddyinfo``, see proc(5); empty where it is not that."""
    return [
        Zone(int(node), name, tuple(map(int, blocks.split())))
        for node, name, blocks in _ZONE.findall(text)
        if blocks.strip() and all(map(is_number, blocks.split()))
    ]


def unusable(zones: Sequence[Zone], order: int) -> float:
    """Share of all free pages in blocks that are too small for this order; 1 where nothing is free."""
    free = sum(zone.pages for zone in zones)
    usable = sum(zone.suitable(order) << order for zone in zones)
    return (free - usable) / free if free else 1.0


def index(zones: Sequence[Zone], order: int) -> float:
    """Why an allocation of this order would fail, in the zone where that is worst: towards 1 because of fragmentation.

    Towards 0 for lack of memory; 0 also where it would succeed, for which the kernel prints −1.
    """
    failing = [zone for zone in zones if any(zone.blocks) and not zone.suitable(order)]
    return max((0.0, *(1.0 - (1.0 + zone.pages / (1 << order)) / sum(zone.blocks) for zone in failing)))


def parse_vmstat(text: str) -> dict[str, int]:
    words = (line.partition(" ") for line in text.splitlines())
    return {name: int(number) for name, _, number in words if is_number(number)}


def _between(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Value]:
    for names, spec in _COUNTED.items():
        found = [
            max(after[each] - before[each], 0)
            for each in after.keys() & before.keys()
            for name in names
            if each == name or (name.endswith("_") and each.startswith(name))
        ]
        if found:
            yield spec.value(sum(found))


# Probe ``folios``: how large the folios are in which files are cached, counted in the kernel as they are added.
#
# A folio is one or more pages that the kernel handles as one: an order of n is 2^n pages. The agent's program
# (``docs/reference/folios-output.md``) counts every folio that is added to the page cache, from before the load
# starts until it has ended; tmpfs does not report its own. Where the disks under test are known, those of file
# systems on other disks are left out, such as that of the root, from which programs are read. The kernel tells no
# folios of one node of those of another, so it watches each machine once.

_Order = Annotated[int, msgspec.Meta(ge=0, le=31)]
_Device = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9!:._-]{1,128}\Z")]

_FOLIOS = MetricSpec("folios", "1", noun="folios added to the page cache", evidence="shared")
_BYTES = MetricSpec("cached.bytes", "B", noun="added to the page cache", evidence="shared")
_SIZE = MetricSpec(
    "folio.size", "B", across="merge", statistic="mean", weight=_FOLIOS.name, noun="a folio of the page cache"
)
_LARGE = MetricSpec(
    "large.share", "1", across="mean", noun="of what the page cache took in large folios", domain="share"
)
# What the mean and the share say already: eleven more candidates would make all others harder to tell from chance.
_OF_SIZE = MetricSpec("folios.{size}", "1", evidence="none", zero_if_absent=True)


class FoliosProbe(AgentProbe):
    """Counts the folios that are added to the page cache of each machine by their size, by eBPF."""

    kind: ClassVar[str] = "folios"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (_FOLIOS, _BYTES, _SIZE, _LARGE, _OF_SIZE)
    output: ClassVar[str] = "folios.jsonl"
    missing: ClassVar[str] = "the counts are missing"

    def needs(self) -> Needs:
        return Needs(root="counting folios", agent=("folios",))

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str]:
        return ["folios"]

    def measured(self, record: ProbeRecord, path: Path) -> Measurements:
        counts: Counts | None = None
        for number, line in _LINES.read(path):
            if number > 2:
                raise ParseError("has more than a line that says when it started, and one of counts", str(path), number)
            counts = line if isinstance(line, Counts) else None
        if counts is None:
            return Measurements(warnings=("the counter did not end cleanly: there are no counts",))
        return Measurements(metric_frame(_values(counts, record.subject.disks or ())), warnings=tuple(_missed(counts)))


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line: from here on everything is counted."""

    monotonic_ns: Count
    realtime_ns: Count


class Counts(msgspec.Struct, frozen=True, tag_field="event", tag="counts"):
    """The last line. ``folios``: a disk's name, or a number, ``0:45``, where the file system is on none that has one;
    order; how many. ``missed`` is ``None`` where the kernel doesn't count that. ``page_size`` in bytes.
    """

    page_size: Annotated[int, msgspec.Meta(ge=512, le=2**24)]
    folios: tuple[tuple[_Device, _Order, Count], ...]
    lost: Count
    missed: Count | None


_LINES: Lines[Started | Counts] = Lines(Started | Counts, Started, "the folio counter")


def _values(counts: Counts, disks: Collection[str]) -> Iterator[Value]:
    sizes: dict[int, int] = {}
    for device, order, count in counts.folios:
        # What is on no disk of a name may be Btrfs, a share, or what a file system keeps in the cache of its device.
        if not disks or device in disks or ":" in device:
            sizes[counts.page_size << order] = sizes.get(counts.page_size << order, 0) + count
    many, total = sum(sizes.values()), sum(size * count for size, count in sizes.items())
    yield _FOLIOS.value(many)
    yield _BYTES.value(total)
    if many:
        yield _SIZE.value(total / many)
        yield _LARGE.value(1 - sizes.get(counts.page_size, 0) * counts.page_size / total)
    for size, count in sorted(sizes.items()):
        yield _OF_SIZE.value(count, size=size_text(size))


def _missed(counts: Counts) -> Iterator[str]:
    if counts.lost:
        yield f"{counts.lost} folios were not counted, because the table of file systems was full"
    if counts.missed is None:
        yield "this kernel does not report how often it could not run the counter"
    elif counts.missed:
        yield f"{counts.missed} times the kernel could not run the counter: as many folios are not counted"
