"""Totals of connections as metrics: ``docs/reference/metrics.md`` lists them, whoever counted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS
from storlab.metrics import Better, MetricSpec, Value, by_name, percentile_name
from storlab.percentiles import percentiles_of_bins
from storlab.probes.tcp.output import AckHistogram
from storlab.probes.tcp.totals import Acks, Totals

_PERCENTILES = (50.0, 90.0, 99.0)
_NANOSECOND = 1e-9

_ACKS: dict[AckHistogram, MetricSpec] = {
    "sent.bytes": MetricSpec("acks.sent.advance", "B", across="merge", quantity="acknowledged"),
    "received.bytes": MetricSpec("acks.received.advance", "B", across="merge", quantity="acknowledged"),
    "sent.gap": MetricSpec("acks.sent.gap", "s", across="merge", quantity="gap"),
    "received.gap": MetricSpec("acks.received.gap", "s", across="merge", quantity="gap"),
}
_ACK_PERCENTILES = by_name(
    MetricSpec(
        f"{of.name}.{percentile_name(p)}", of.unit, across="merge", of=of.name, statistic="percentile", percentile=p
    )
    for of in _ACKS.values()
    for p in _PERCENTILES
)
OF_ACKS = (*_ACKS.values(), *_ACK_PERCENTILES.values())
"""Distributions of pure ACKs: how many bytes each acknowledges, and how long after the one before it comes."""

_COUNTERS = {
    "DelayedACKs": "delayed-acks",
    "TCPSackRecovery": "sack.recoveries",
    "TCPDSACKOldSent": "dsack.sent",
    "TCPFastRetrans": "retransmits.fast",
    "TCPTimeouts": "timeouts",
    "TCPLossProbes": "loss-probes",
}
"""Counters of a network namespace → metrics."""

_NOUNS = {
    "delayed-acks": "delayed ACKs",
    "sack.recoveries": "recoveries by SACK",
    "dsack.sent": "DSACKs sent",
    "retransmits.fast": "fast retransmits",
    "timeouts": "retransmission timeouts",
    "loss-probes": "loss probes",
}


def _ends(name: str, noun: str, unit: str = "1", over: str = "") -> Iterator[MetricSpec]:
    """A metric of what was sent and one of what was received; ``over``: of means, what they are over."""
    for way in ("sent", "received"):
        of = noun.format(way=way)
        if over:
            yield MetricSpec(name.format(way=way), unit, across="merge", weight=over.format(way=way), noun=of)
        else:
            yield MetricSpec(name.format(way=way), unit, noun=of)


def _each(what: str, unit: str, noun: str, better: Better = "neither") -> MetricSpec:
    return MetricSpec(f"{what}.per-request", unit, better, across="merge", weight="requests", noun=noun)


_SPECS = by_name(
    [
        MetricSpec("connections", "1", noun="TCP connections"),
        MetricSpec("connections.opened", "1", noun="TCP connections opened"),
        MetricSpec("connections.closed", "1", noun="TCP connections closed"),
        *_ends("bytes.{way}", "{way} over TCP", "B"),
        MetricSpec("bytes.retransmitted", "B", noun="retransmitted", evidence="rare"),
        *_ends("segments.{way}", "segments {way}"),
        *_ends("acks.{way}", "ACKs {way}"),
        *_ends("acks.{way}.bytes", "acknowledged by each ACK {way}", "B", over="acks.{way}"),
        *_ends("acks.{way}.mss", "MSS acknowledged by each ACK {way}", over="acks.{way}"),
        MetricSpec("requests", "1", noun="requests of the disk"),
        _each("acks", "1", "ACKs per request", "lower"),
        _each("segments.sent", "1", "segments sent per request", "lower"),
        _each("bytes", "B", "over TCP per request"),
        MetricSpec("retransmits", "1", "lower", noun="segments retransmitted", evidence="rare"),
        MetricSpec(
            "retransmits.share",
            "1",
            "lower",
            across="merge",
            weight="segments.sent",
            noun="of segments retransmitted",
            domain="share",
        ),
        MetricSpec("dsack.received", "1", "lower", noun="DSACKs received", evidence="rare"),
        MetricSpec("out-of-order", "1", "lower", noun="segments out of order", evidence="rare"),
        MetricSpec("reordering", "1", "lower", evidence="none"),
        *(
            MetricSpec(name, "1", "neither" if name == "delayed-acks" else "lower", noun=noun, evidence="rare")
            for name, noun in _NOUNS.items()
        ),
        MetricSpec("rtt", "s", "lower", across="mean", noun="for a round trip"),
        MetricSpec("rtt.max", "s", "lower", across="max", tail=True, noun="for the longest round trip"),
        MetricSpec("cwnd", "1", across="mean", noun="segments of congestion window"),
        MetricSpec("mss", "B", across="min", noun="of data in a segment at most"),
        MetricSpec("busy", "s", noun="of having data to send"),
        MetricSpec("limited.window", "s", "lower", noun="of waiting for the receiver's window", evidence="waited"),
        MetricSpec("limited.buffer", "s", "lower", noun="of waiting for room in the send buffer", evidence="waited"),
    ]
)

SEGMENTS_PER_REQUEST = _each("segments", "1", "segments per request", "lower")
"""Of both ends, each counted where it was sent."""

METRICS = (*_SPECS.values(), SEGMENTS_PER_REQUEST, *OF_ACKS)
COUNTS = frozenset(spec.name for spec in METRICS if spec.across in ("sum", "merge") and spec.unit != "s") - frozenset(
    _COUNTERS.values()
)
"""Those that count what the connections alone did."""


def values(totals: Totals) -> Iterator[Value]:
    yield from (_SPECS[name].value(number) for name, number in _sums(totals) if number is not None)
    yield from (_SPECS[name].value(above / below) for name, above, below in _ratios(totals) if below)
    for counter, name in _COUNTERS.items():
        if counter in totals.counters:
            yield _SPECS[name].value(max(totals.counters[counter], 0))
    if totals.rtts:
        yield _SPECS["rtt"].value(statistics.fmean(totals.rtts))
        yield _SPECS["rtt.max"].value(max(totals.rtts))
        yield _SPECS["cwnd"].value(statistics.fmean(totals.cwnds))
    if totals.mss:
        yield _SPECS["mss"].value(min(totals.mss))
    yield from ack_values(totals.acks)


def _sums(totals: Totals) -> Iterator[tuple[str, float | None]]:
    yield "connections", totals.connections
    yield "connections.opened", totals.opened
    yield "connections.closed", totals.closed
    yield "bytes.sent", totals.bytes_sent
    yield "bytes.received", totals.bytes_received
    yield "bytes.retransmitted", totals.bytes_retransmitted
    yield "segments.sent", totals.segments_sent
    yield "segments.received", totals.segments_received
    yield "acks.sent", totals.acks_sent
    yield "acks.received", totals.acks_received
    yield "requests", totals.requests
    yield "retransmits", totals.retransmits
    yield "dsack.received", totals.dsacks
    yield "out-of-order", totals.out_of_order
    yield "reordering", totals.reordering
    yield "busy", totals.busy
    yield "limited.window", totals.window_limited
    yield "limited.buffer", totals.buffer_limited


def _ratios(totals: Totals) -> Iterator[tuple[str, float, float]]:
    once = max(totals.bytes_sent - totals.bytes_retransmitted, 0)
    yield "acks.sent.bytes", totals.bytes_received, totals.acks_sent
    yield "acks.sent.mss", totals.received_in_mss, totals.acks_sent
    yield "acks.received.bytes", once, totals.acks_received
    yield "acks.received.mss", totals.sent_in_mss, totals.acks_received
    requests = totals.requests or 0
    yield "acks.per-request", totals.acks_sent + totals.acks_received, requests
    yield "segments.sent.per-request", totals.segments_sent, requests
    yield "bytes.per-request", totals.bytes_sent + totals.bytes_received, requests
    yield "retransmits.share", totals.retransmits, totals.segments_sent


def ack_values(acks: Acks) -> Iterator[Value]:
    """Percentiles, in B and s."""
    for name, bins in _by_histogram(acks):
        for percentile, value in percentiles_of_bins(bins, _PERCENTILES).items():
            yield _ACK_PERCENTILES[f"{name}.{percentile_name(percentile)}"].value(value)


def ack_histograms(acks: Acks) -> pl.DataFrame:
    rows = [(None, name, *each) for name, bins in _by_histogram(acks) for each in bins]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def _by_histogram(acks: Acks) -> Iterator[tuple[str, list[tuple[float, float, int]]]]:
    for what, spec in _ACKS.items():
        unit = _NANOSECOND if spec.unit == "s" else 1.0
        bins = sorted((lower * unit, upper * unit, n) for (of, lower, upper), n in acks.items() if of == what)
        if bins:
            yield spec.name, bins
