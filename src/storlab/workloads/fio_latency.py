"""One of fio's latency objects (``clat_ns``, ``lat_ns``), and several of them merged into one.

``{"min", "max", "mean", "N", "percentile": {"99.000000": ns}, "bins": {"19072": count}}``: ``percentile`` is
there where fio kept percentiles of this kind of latency, ``bins`` then only under ``json+``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from storlab.measurements import Across, Better, Value
from storlab.workloads import histogram
from storlab.workloads.fio_document import Node
from storlab.workloads.histogram import Ints

_MOST = 1 << 53  # operations in one histogram; lets a thousand be added without overflow


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Latency:
    """Latencies of ``n`` operations, in ns.

    ``bins`` (indices, ascending) and ``counts`` are of one length, empty where fio gave none.
    ``percentiles`` are fio's own, kept for want of bins; they can't be merged.
    ``total``: from submission's preparation on (``lat``), not from submission (``clat``).
    """

    n: int
    minimum: int
    maximum: int
    mean: float
    bins: Ints = field(default_factory=_no_ints)
    counts: Ints = field(default_factory=_no_ints)
    percentiles: dict[float, int] = field(default_factory=dict)
    total: bool = False

    @property
    def has_bins(self) -> bool:
        return bool(self.bins.size)

    @cached_property
    def from_bins(self) -> dict[float, int]:
        """Percentiles from the bins; kept, because the sum of a single direction or job is that one itself."""
        at = histogram.ranked(self.counts, histogram.PERCENTILES)
        return dict(zip(histogram.PERCENTILES, histogram.VALUE_NS[self.bins[at]].tolist(), strict=True))

    @staticmethod
    def none() -> Latency:
        """No operation at all."""
        return Latency(0, 0, 0, 0.0)


def read_latency(node: Node) -> Latency:
    """The latency object at ``node``; ``ParseError`` names what in it is wrong."""
    percentiles: dict[float, int] = {}
    if "percentile" in node and "bins" not in node:
        listed = node["percentile"]
        for key in listed.members():
            try:
                percentiles[float(key)] = listed[key].count()
            except ValueError:
                raise listed.fail("an object whose keys are percentiles") from None
    bins, counts = _bins(node["bins"]) if "bins" in node else (_no_ints(), _no_ints())
    return Latency(
        n=node["N"].count(),
        minimum=node["min"].count(),
        maximum=node["max"].count(),
        mean=node["mean"].number(),
        bins=bins,
        counts=counts,
        percentiles=percentiles,
        total=node.path.endswith(".lat_ns"),
    )


def _bins(node: Node) -> tuple[Ints, Ints]:
    members = node.members()
    values = list(members.values())
    if not all(type(value) is int and 0 <= value < _MOST for value in values):
        raise node.fail("an object of counts")
    try:
        bins = np.array([histogram.BIN_OF_VALUE[key] for key in members], dtype=np.int64)
    except KeyError as error:
        raise node.fail(f"an object of fio's latency bins, of which {error} is none") from None
    counts = np.array(values, dtype=np.int64)
    if counts.sum(dtype=np.float64) >= _MOST:
        raise node.fail("an object of counts")
    used = counts > 0
    bins, counts = bins[used], counts[used]
    if bins.size > 1 and not (bins[1:] > bins[:-1]).all():
        order = np.argsort(bins)
        bins, counts = bins[order], counts[order]
    return bins, counts


def merge(parts: Iterable[Latency]) -> Latency:
    """All operations of ``parts``: bins added, means weighted by operations, the extremes of the extremes.

    Where only some have bins the result has none; fio's own percentiles survive only where a single part
    had operations.
    """
    used = [part for part in parts if part.n]
    if len(used) < 2:
        return used[0] if used else Latency.none()
    n = sum(part.n for part in used)
    bins, counts = _no_ints(), _no_ints()
    if all(part.has_bins for part in used):
        dense = np.zeros(histogram.BINS, dtype=np.int64)
        for part in used:
            dense[part.bins] += part.counts
        bins = np.flatnonzero(dense)
        counts = dense[bins]
    return Latency(
        n=n,
        minimum=min(part.minimum for part in used),
        maximum=max(part.maximum for part in used),
        mean=sum(part.mean * (part.n / n) for part in used),
        bins=bins,
        counts=counts,
        total=any(part.total for part in used),
    )


def latency_values(latency: Latency, metric: str, job: str | None) -> Iterator[Value]:
    """``metric``.mean, .min, .max and percentiles in s; nothing where no operation was measured."""
    if not latency.n:
        return
    lower: Better = "lower"
    yield Value(f"{metric}.mean", latency.mean / 1e9, "s", lower, "merge", job)
    yield Value(f"{metric}.min", latency.minimum / 1e9, "s", lower, "min", job)
    yield Value(f"{metric}.max", latency.maximum / 1e9, "s", lower, "max", job)
    if latency.has_bins:
        found = latency.from_bins
        across: Across = "merge"
    else:
        found = {p: latency.percentiles[p] for p in histogram.PERCENTILES if p in latency.percentiles}
        across = "none"
    for percentile, value in found.items():
        name = f"{metric}.{histogram.percentile_name(percentile)}"
        yield Value(name, value / 1e9, "s", lower, across, job)
