"""Captures of packets, as what TCP did in them: all connections together, and each of the largest as a job."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from storlab.agent_binary import agent_path
from storlab.errors import ParseError
from storlab.text import printable
from storlab.tools.importer import Deferred, Importer, Part
from storlab.tools.pcap.capture import Capture, Talk, read_capture
from storlab.tools.pcap.metrics import METRICS, WAYS, bin_edges, gaps_of, numbers, values

if TYPE_CHECKING:
    from storlab.measurements import Measurements

_JOBS = 10  # connections, those with most bytes, that are shown one by one
_TOLD = 3  # of which there are sentences
_FOREVER = 4_000_000_000 * 10**9  # ns: a time beyond is none


class PcapImporter(Importer):
    """pcap, pcapng and tcpdump's text. Files are read piece by piece, however long they are."""

    kind: ClassVar[str] = "pcap"
    raw_name: ClassVar[str] = "capture"
    primary: ClassVar[tuple[str, ...]] = ("acks.sent.mss", "acks.received.mss", "acks.sent")
    unknown: ClassVar[str] = "at which of the two ends it was captured, nor what the load was"
    streams: ClassVar[bool] = True

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return self.read_stream(io.BytesIO(text), source, options)

    def read_stream(self, file: BinaryIO, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        capture = read_capture(file, source, agent_path())
        if not capture.talks:
            raise ParseError("; ".join(["has no packet of TCP", *capture.warnings]), source)
        return [part_of(capture)]


def part_of(capture: Capture) -> Part:
    """What TCP did in a capture that has a connection."""
    first, last = min(talk.first for talk in capture.talks), max(talk.last for talk in capture.talks)
    facts = {
        "packets": str(capture.packets),
        "connections": str(len(capture.talks)),
        "seconds": f"{(last - first) / 1e9:.6f}",
    }
    known = [name for name, number in numbers(capture.talks) if number is not None]
    measured = Deferred(lambda: _measured(capture, facts), known, facts, tuple(_sentences(capture)))
    timed = 0 < first < _FOREVER
    started = datetime.fromtimestamp(first // 10**9, UTC) if timed and first > 10**17 else None
    return Part(measured, started=started, lasted=(last - first) / 1e9 if started else None)


def _measured(capture: Capture, facts: Mapping[str, object]) -> Measurements:
    import polars as pl

    from storlab.measurements import HISTOGRAM_COLUMNS, Measurements, metric_frame

    jobs: list[tuple[str | None, Sequence[Talk]]] = [(None, capture.talks)]
    names = [printable(talk.name) for talk in capture.talks[:_JOBS]]
    jobs += [
        (_apart(name, names, at), [talk])
        for at, (name, talk) in enumerate(zip(names, capture.talks, strict=False))
        if len(capture.talks) > 1
    ]
    return Measurements(
        metric_frame(value for job, talks in jobs for value in values(talks, job)),
        histograms=pl.DataFrame(list(_bins(capture.talks)), schema=HISTOGRAM_COLUMNS, orient="row"),
        warnings=tuple(_sentences(capture)),
        facts=dict(facts),
        declared=METRICS,
    )


def _apart(name: str, names: Sequence[str], at: int) -> str:
    """Connections that follow each other on the same ports are numbered."""
    return name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"


def _bins(talks: Sequence[Talk]) -> Iterator[tuple[None, str, float, float, int]]:
    for at, way in enumerate(WAYS):
        for number, count in sorted(gaps_of([(talk.sent, talk.received)[at] for talk in talks]).items()):
            yield None, f"acks.{way}.gap", *bin_edges(number), count


def _sentences(capture: Capture) -> Iterator[str]:
    """What the largest connections did, then what the capture lacks."""
    for talk in capture.talks[:_TOLD]:
        yield from _of_talk(talk)
    rest = capture.talks[_TOLD:]
    missing = sum(talk.missing for talk in rest)
    if missing:
        yield f"{missing:,} bytes of other connections are missing from the capture"
    yield from capture.warnings


def _of_talk(talk: Talk) -> Iterator[str]:
    name = printable(talk.name)
    for what, data, acks, mss in (
        ("received", talk.received, talk.sent, talk.mss_received),
        ("sent", talk.sent, talk.received, talk.mss_sent),
    ):
        if not data.segments:
            continue
        each = acks.advanced / acks.advancing if acks.advancing else 0.0
        full = f" = {each / mss:.2f} MSS of {mss}{' (estimated)' if talk.estimated else ''}" if mss and each else ""
        mean = f", each {each:.0f} bytes on{full}" if each else ""
        yield f"{name}: {what} {data.segments:,} data segments, {acks.acks:,} ACKs of these{mean}"
    if talk.missing:
        yield (
            f"{name}: {talk.missing:,} bytes are missing from the capture, by its sequence numbers: "
            "segments, ACKs and retransmits are at least what is counted"
        )
    if talk.merged[0]:
        yield (
            f"{name}: {talk.merged[0]:,} segments are longer than the MSS: they were captured before a card cut them "
            f"up, or after it merged them; the network had about {talk.merged[1]:,}"
        )
    yield from _trouble(talk, name)


def _trouble(talk: Talk, name: str) -> Iterator[str]:
    both = (talk.sent, talk.received)
    delayed = sum(way.delayed for way in both)
    if delayed:
        seconds = sum(way.delayed_ns for way in both) / 1e9
        yield f"{name}: {delayed:,} delayed ACKs, 35 to 300 ms after the newest data: {seconds:.2f} s of waiting in all"
    windows = sum(way.zero_windows for way in both)
    if windows:
        yield f"{name}: a receiver said {windows:,} times that it has no room (window 0)"
    again = sum(way.retransmits for way in both)
    if again:
        yield f"{name}: {again:,} retransmits, {sum(way.bytes_again for way in both):,} bytes"
