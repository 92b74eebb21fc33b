"""Captures of packets, as what TCP did in them: all connections together, and each of the largest as a job."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from storlab.base.errors import ParseError
from storlab.base.programs import agent_path
from storlab.base.text import printable
from storlab.metrics import MetricSpec, Value, by_name, latencies, percentile_name
from storlab.tools.importer import Deferred, Importer, Part
from storlab.tools.pcap.capture import BINS, Capture, Direction, Talk, read_capture

if TYPE_CHECKING:
    from storlab.measurements import Measurements


# Metrics of captures: named as the probe ``tcp`` names them at the end that opened a connection.
#
# What one end sent, the other received; both can be said of a capture, so most metrics have both names.

WAYS = ("sent", "received")
_SPECS = by_name(
    [
        MetricSpec("connections", "1"),
        MetricSpec("time", "s"),
        *(MetricSpec(f"bytes.{way}", "B") for way in WAYS),
        *(MetricSpec(f"segments.{way}", "1") for way in WAYS),
        MetricSpec("segments.merged", "1"),
        *(MetricSpec(f"acks.{way}", "1") for way in WAYS),
        *(MetricSpec(f"acks.{way}.bytes", "B", across="merge", weight=f"acks.{way}") for way in WAYS),
        *(MetricSpec(f"acks.{way}.mss", "1", across="merge", weight=f"acks.{way}") for way in WAYS),
        *(spec for way in WAYS for spec in latencies(f"acks.{way}.gap", f"acks.{way}")),
        MetricSpec("delayed-acks", "1"),
        MetricSpec("delayed-acks.received", "1"),
        MetricSpec("delayed-acks.time", "s", "lower"),
        MetricSpec("retransmits", "1", "lower"),
        MetricSpec("retransmits.received", "1", "lower"),
        MetricSpec("bytes.retransmitted", "B", "lower"),
        MetricSpec("out-of-order", "1", "lower"),
        *(MetricSpec(f"sack.{way}", "1") for way in WAYS),
        *(MetricSpec(f"dsack.{way}", "1", "lower") for way in WAYS),
        *(MetricSpec(f"zero-windows.{way}", "1", "lower") for way in WAYS),
        *(
            MetricSpec(f"rtt{way}{kind}", "s", "lower", "max" if kind else "mean", tail=bool(kind))
            for way in ("", ".received")
            for kind in ("", ".max")
        ),
        MetricSpec("mss", "B", across="min"),
        *(MetricSpec(f"missing.{way}", "B", "lower") for way in WAYS),
    ]
)
METRICS = tuple(_SPECS.values())


def values(talks: Sequence[Talk], job: str | None) -> Iterator[Value]:
    """All that is known of these connections together; a mean of nothing is left out."""
    for name, number in numbers(talks):
        if number is not None:
            yield _SPECS[name].value(number, job)
    for at, way in enumerate(WAYS):
        yield from _gaps(way, [(talk.sent, talk.received)[at] for talk in talks], job)


def numbers(talks: Sequence[Talk]) -> Iterator[tuple[str, float | None]]:
    yield "connections", len(talks)
    yield "time", (max(talk.last for talk in talks) - min(talk.first for talk in talks)) / 1e9
    yield "segments.merged", sum(talk.merged[0] for talk in talks)
    mss = [each for talk in talks for each in (talk.mss_sent, talk.mss_received) if each]
    yield "mss", min(mss) if mss else None
    sent, received = [talk.sent for talk in talks], [talk.received for talk in talks]
    acknowledged = [talk.mss_received for talk in talks], [talk.mss_sent for talk in talks]
    for way, own, full in zip(WAYS, (sent, received), acknowledged, strict=True):
        yield from _of_way(way, own)
        known = [(each, size) for each, size in zip(own, full, strict=True) if size]
        counted = sum(each.advancing for each, _ in known)
        in_mss = sum(each.advanced / size for each, size in known)
        yield f"acks.{way}.mss", in_mss / counted if counted else None
    both = [*sent, *received]
    yield "delayed-acks", sum(way.delayed for way in sent)
    yield "delayed-acks.received", sum(way.delayed for way in received)
    yield "delayed-acks.time", sum(way.delayed_ns for way in both) / 1e9
    yield "retransmits", sum(way.retransmits for way in sent)
    yield "retransmits.received", sum(way.retransmits for way in received)
    yield "bytes.retransmitted", sum(way.bytes_again for way in both)
    yield "out-of-order", sum(way.overtaken for way in both)
    for name, own in (("rtt", sent), ("rtt.received", received)):
        count = sum(way.rtt_count for way in own)
        yield name, sum(way.rtt_sum for way in own) / count / 1e9 if count else None
        yield f"{name}.max", max(way.rtt_most for way in own) / 1e9 if count else None


def _of_way(way: str, own: Sequence[Direction]) -> Iterator[tuple[str, float | None]]:
    counted = sum(each.advancing for each in own)
    again = 0 if way == "sent" else sum(each.bytes_again for each in own)  # as the kernel counts: not received twice
    yield f"bytes.{way}", sum(each.bytes for each in own) - again
    yield f"segments.{way}", sum(each.segments for each in own)
    yield f"acks.{way}", sum(each.acks for each in own)
    yield f"acks.{way}.bytes", sum(each.advanced for each in own) / counted if counted else None
    yield f"sack.{way}", sum(each.sacks for each in own)
    yield f"dsack.{way}", sum(each.dsacks for each in own)
    yield f"zero-windows.{way}", sum(each.zero_windows for each in own)
    yield f"missing.{way}", sum(each.missing for each in own)


def _gaps(way: str, own: Sequence[Direction], job: str | None) -> Iterator[Value]:
    """Between ACKs: mean, least and longest to within a bin, and percentiles."""
    import numpy as np

    from storlab.percentiles import percentiles_of_each

    bins = sorted(gaps_of(own).items())
    if not bins:
        return
    edges = [bin_edges(number) for number, _ in bins]
    counts = [count for _, count in bins]
    mean = sum((low + high) / 2 * count for (low, high), count in zip(edges, counts, strict=True)) / sum(counts)
    name = f"acks.{way}.gap"
    found = {"mean": mean, "min": edges[0][0], "max": edges[-1][1]}
    lower, upper = np.array(edges).T
    (percentiles,) = percentiles_of_each(np.zeros(len(bins), dtype=np.int64), lower, upper, np.array(counts))
    found |= {percentile_name(p): value for p, value in percentiles.items()}
    for statistic, seconds in found.items():
        yield _SPECS[f"{name}.{statistic}"].value(seconds, job)


def gaps_of(own: Sequence[Direction]) -> Counter[int]:
    total: Counter[int] = Counter()
    for each in own:
        total.update(each.gaps)
    return total


def bin_edges(number: int) -> tuple[float, float]:
    """In s."""
    return 1e-6 * 2 ** (number / BINS), 1e-6 * 2 ** ((number + 1) / BINS)


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
    for at, (name, talk) in enumerate(zip(names, capture.talks, strict=False)) if len(capture.talks) > 1 else ():
        number = names[: at + 1].count(name)  # of connections that follow each other on the same ports
        jobs.append((name if names.count(name) == 1 else f"{name} ({number})", [talk]))
    bins = [
        (None, f"acks.{way}.gap", *bin_edges(number), count)
        for at, way in enumerate(WAYS)
        for number, count in sorted(gaps_of([(talk.sent, talk.received)[at] for talk in capture.talks]).items())
    ]
    return Measurements(
        metric_frame(value for job, talks in jobs for value in values(talks, job)),
        histograms=pl.DataFrame(bins, schema=HISTOGRAM_COLUMNS, orient="row"),
        warnings=tuple(_sentences(capture)),
        facts=dict(facts),
        declared=METRICS,
    )


def _sentences(capture: Capture) -> Iterator[str]:
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
