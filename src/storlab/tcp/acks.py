"""Distributions of pure ACKs: how many bytes each acknowledges, and how long after the one before it comes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS
from storlab.metrics import MetricSpec, Value, by_name, percentile_name
from storlab.percentiles import percentiles_of_each
from storlab.tcp.agent_output import AckHistogram
from storlab.tcp.totals import Acks

_PERCENTILES = (50.0, 90.0, 99.0)
_NANOSECOND = 1e-9

_HISTOGRAMS: dict[AckHistogram, MetricSpec] = {
    "sent.bytes": MetricSpec("acks.sent.advance", "B", across="merge", quantity="acknowledged"),
    "received.bytes": MetricSpec("acks.received.advance", "B", across="merge", quantity="acknowledged"),
    "sent.gap": MetricSpec("acks.sent.gap", "s", across="merge", quantity="gap"),
    "received.gap": MetricSpec("acks.received.gap", "s", across="merge", quantity="gap"),
}
_SPECS = by_name(
    MetricSpec(
        f"{of.name}.{percentile_name(p)}", of.unit, across="merge", of=of.name, statistic="percentile", percentile=p
    )
    for of in _HISTOGRAMS.values()
    for p in _PERCENTILES
)
METRICS = (*_HISTOGRAMS.values(), *_SPECS.values())


def ack_values(acks: Acks) -> Iterator[Value]:
    """Percentiles, in B and s."""
    for name, bins in _by_histogram(acks):
        lower, upper, counts = (np.array(column) for column in zip(*bins, strict=True))
        (found,) = percentiles_of_each(np.zeros(len(bins), dtype=np.int64), lower, upper, counts, _PERCENTILES)
        for percentile, value in found.items():
            yield _SPECS[f"{name}.{percentile_name(percentile)}"].value(value)


def ack_histograms(acks: Acks) -> pl.DataFrame:
    """``HISTOGRAM_COLUMNS``."""
    rows = [(None, name, *each) for name, bins in _by_histogram(acks) for each in bins]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def _by_histogram(acks: Acks) -> Iterator[tuple[str, list[tuple[float, float, int]]]]:
    """Of each that is not empty: lower and upper bound in its unit, and count."""
    for what, spec in _HISTOGRAMS.items():
        unit = _NANOSECOND if spec.unit == "s" else 1.0
        bins = sorted((lower * unit, upper * unit, n) for (of, lower, upper), n in acks.items() if of == what)
        if bins:
            yield spec.name, bins
