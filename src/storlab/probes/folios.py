"""Probe ``folios``: how large the folios are in which files are cached, counted in the kernel as they are added.

A folio is one or more pages that the kernel handles as one: an order of n is 2^n pages. The agent's program
(``docs/reference/folios-output.md``) counts every folio that is added to the page cache, from before the load starts
until it has ended; tmpfs does not report its own. Where the disks under test are known, those of file systems on other
disks are left out, such as that of the root, from which programs are read. The kernel tells no folios of one node of
those of another, so it watches each machine once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from storlab.amounts import size_text
from storlab.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.needs import Needs
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord
from storlab.probes.lines import Count, Lines
from storlab.probes.subject import Kind

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
