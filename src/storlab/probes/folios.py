"""Probe ``folios``: how large the folios are in which files are cached, counted in the kernel as they are added.

A folio is one or more pages that the kernel handles as one: an order of n is 2^n pages. The agent's program
(``docs/reference/folios-output.md``) counts every folio that is added to the page cache, from before the load starts
until it has ended; tmpfs does not report its own. Where the disks under test are known, those of file systems on other
disks are left out, such as that of the root, from which programs are read. The kernel tells no folios of one node of
those of another, so it watches each machine once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from storlab.amounts import size_text
from storlab.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.needs import Needs
from storlab.probes.agent_program import agent_program
from storlab.probes.alignment.probe import read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind
from storlab.reading import lines_of

NAME = "folios.jsonl"
"""What the agent's program printed."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
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


class FoliosProbe(Probe):
    """Counts the folios that are added to the page cache of each machine by their size, by eBPF."""

    kind: ClassVar[str] = "folios"
    watches: ClassVar[frozenset[Kind]] = frozenset({"machine"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (_FOLIOS, _BYTES, _SIZE, _LARGE, _OF_SIZE)

    def needs(self) -> Needs:
        return Needs(root="counting folios", agent=("folios",))

    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        return agent_program(context, self.kind, ["folios"], NAME)

    def parse(self, record: ProbeRecord) -> Measurements:
        notes = read_notes(record.raw)
        path = record.raw / NAME
        if not path.exists():
            return Measurements(warnings=notes or ("folios: the counts are missing",))
        counts = read_counts(path)
        if counts is None:
            return Measurements(warnings=(*notes, "folios: the counter did not end cleanly: there are no counts"))
        values = _values(counts, record.subject.disks or ())
        return Measurements(metrics=metric_frame(values), warnings=(*notes, *_missed(counts)))


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line: from here on everything is counted."""

    monotonic_ns: _Count
    realtime_ns: _Count


class Counts(msgspec.Struct, frozen=True, tag_field="event", tag="counts"):
    """The last line. ``folios``: a disk's name, or a number, ``0:45``, where the file system is on none that has one;
    order; how many. ``missed`` is ``None`` where the kernel doesn't count that. ``page_size`` in bytes.
    """

    page_size: Annotated[int, msgspec.Meta(ge=512, le=2**24)]
    folios: tuple[tuple[_Device, _Order, _Count], ...]
    lost: _Count
    missed: _Count | None


_DECODER: msgspec.json.Decoder[Started | Counts] = msgspec.json.Decoder(Started | Counts)


def read_counts(path: Path) -> Counts | None:
    """What the program counted; ``None`` where it was killed before it said so. Raises ``ParseError``."""
    found: Counts | None = None
    try:
        for number, line in enumerate(lines_of(path), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                read = _DECODER.decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise ParseError(f"is no line of the folio counter: {error}", str(path), number) from None
            if isinstance(read, Started) != (number == 1) or number > 2:
                raise ParseError("has a first line that says when it started, and one of counts", str(path), number)
            found = read if isinstance(read, Counts) else None
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None
    return found


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
        yield f"folios: {counts.lost} folios were not counted, because the table of file systems was full"
    if counts.missed is None:
        yield "folios: this kernel does not report how often it could not run the counter"
    elif counts.missed:
        yield f"folios: {counts.missed} times the kernel could not run the counter: as many folios are not counted"
