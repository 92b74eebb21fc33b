"""Probe ``fragmentation``: whether free memory is in pieces, and what the kernel does about it, each second.

Both indices follow from ``/proc/buddyinfo``, as the kernel computes them for ``unusable_index`` and ``extfrag_index``
in ``/sys/kernel/debug/extfrag`` (``fill_contig_page_info`` and ``__fragmentation_index`` in mm/vmstat.c), so neither
debugfs nor root is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, NamedTuple

import polars as pl
from pydantic import Field, field_validator

from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.procfs import is_number
from storlab.probes.sampling import around, read_samples, sampling
from storlab.probes.subject import Kind
from storlab.units import Duration

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
        warnings = () if len(looks) > 1 else ("fragmentation: too few samples in the measured phase",)
        return Measurements(metrics=metric_frame(values), series=frame, warnings=warnings)


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
