"""Metrics of captures: named as the probe ``tcp`` names them at the end that opened a connection.

What one end sent, the other received; both can be said of a capture, so most metrics have both names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from storlab.metrics import MetricSpec, Value, by_name, latencies, percentile_name
from storlab.tools.pcap.agent_output import BINS, Direction
from storlab.tools.pcap.capture import Talk

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
    """All but gaps between ACKs; ``None`` is not known."""
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
    """Bin → gaps between ACKs, of several directions."""
    total: Counter[int] = Counter()
    for each in own:
        total.update(each.gaps)
    return total


def bin_edges(number: int) -> tuple[float, float]:
    """In s."""
    return 1e-6 * 2 ** (number / BINS), 1e-6 * 2 ** ((number + 1) / BINS)
