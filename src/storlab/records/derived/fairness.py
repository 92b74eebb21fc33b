"""How fairly nodes, and jobs, share what they have together: Jain's index, and the largest share by the smallest.

R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
computer systems", DEC Research Report TR-301, 1984.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import polars as pl

from storlab.metrics import Better, Domain, MetricSpec, Value

JOBS = "jobs."
"""How the statistics begin that are of jobs, and not of nodes."""


@cache
def declares(throughput: str) -> tuple[MetricSpec, ...]:
    """Fairness and imbalance of the nodes' shares in a throughput, and of the jobs'."""
    each: tuple[tuple[str, Better, Domain], ...] = (("fairness", "higher", "share"), ("imbalance", "lower", ""))
    return tuple(
        MetricSpec(f"{throughput}.{name}", "1", better, "none", of=throughput, statistic=name, domain=domain)
        for among in ("", JOBS)
        for of, better, domain in each
        for name in (f"{among}{of}",)
    )


def jain(values: Sequence[float]) -> float | None:
    """(Σx)² ÷ (n·Σx²): 1 where all are equal, 1/n where one has everything; ``None`` where nothing is shared."""
    most = max(values, default=0.0)
    if not math.isfinite(most) or most <= 0 or not all(value >= 0 for value in values):
        return None
    shares = [value / most for value in values]  # squares of huge and of tiny values would leave the floats' range
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def imbalance(values: Sequence[float]) -> float | None:
    """The largest ÷ the smallest: 1 where all are equal; ``None`` where one has nothing, or nothing is shared."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    ratio = most / least if least > 0 else math.inf
    return ratio if math.isfinite(ratio) else None


def fairness(metric: str, values: Sequence[float], among: str = "") -> Iterator[Value]:
    """The fairness and the imbalance of the ``values`` of nodes, or ``among`` others: ``JOBS``."""
    fair, unequal = declares(metric)[2 if among else 0 :][:2]
    index, ratio = jain(values), imbalance(values)
    if index is not None:
        yield fair.value(index)
    if ratio is not None:
        yield unequal.value(ratio)


def of_jobs(
    metrics: pl.DataFrame, throughputs: Collection[str], by: Sequence[str] = ()
) -> Iterator[tuple[tuple[object, ...], Value]]:
    """The fairness among jobs, for each group of ``by``, of the ``throughputs`` that every one of several jobs has.

    ``metrics``: ``METRIC_COLUMNS``, ``node`` and those of ``by``. A job of several nodes counts on each.
    """
    jobs = metrics.filter(pl.col("job").is_not_null())
    if jobs.is_empty() or (not by and jobs.select("node", "job").n_unique() == 1):
        return
    takers = jobs.group_by(*by, pl.lit(0)).agg(takers=pl.struct("node", "job").n_unique()).drop("literal")
    own = jobs.filter(pl.col("metric").is_in(list(throughputs)))
    shared = own.group_by(*by, "metric", maintain_order=True).agg("value")
    joined = shared.join(takers, on=list(by), maintain_order="left") if by else shared.join(takers, how="cross")
    for *group, metric, values, many in joined.iter_rows():
        if many > 1 and len(values) == many:
            yield from ((tuple(group), value) for value in fairness(metric, values, JOBS))
