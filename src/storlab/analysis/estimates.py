"""Every metric of every cell over its rounds: median, mean, spread and the anytime-valid interval of the mean; and of
what a study asks about, the same per node.

Estimates describe. Their intervals hold one by one, uncorrected for how many there are, and assume roughly
normal rounds; which of two cells is better is for ``compare``, which pairs rounds and corrects.

Everything is computed by grouped expressions over narrow columns: each cell × source × metric is one *series*, with one
value a round, and text stays in one row a series. A study of 10,000 trials with 100 metrics has a million rows; carried
along with all their text they would take half a gigabyte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from storlab.analysis.design import Design, Levels
from storlab.analysis.questions import Catalogue, matching
from storlab.analysis.stats.anytime import ROUNDING, width_factors
from storlab.analysis.stats.checks import DRIFT_FROM, DRIFT_Z, MAD_TO_SD, MEAN_DEVIATION_TO_SD, OUTLIER_Z, OUTLIERS_FROM
from storlab.analysis.summary import HOST, Estimate
from storlab.findings import AnyFinding
from storlab.findings.rounds import Constant, Drift, LeftOut, Outliers, TooFewRounds
from storlab.metrics import END, PROBE, Declarations, Key, MetricSpec, domain_of

KEYS = ("cell", "source", "metric")


@dataclass(frozen=True, eq=False)
class Recorded:
    """``series``: ``series``, ``cell``, ``source``, ``metric``, ``unit``, ``better``; cells in the design's order.

    ``values``: ``series``, ``round``, ``value``, sorted by the first two (null, NaN and infinities as they came).
    """

    series: pl.DataFrame
    values: pl.DataFrame


def collect(metrics: pl.DataFrame, done: pl.DataFrame, cells: Sequence[int], node: str | None = None) -> Recorded:
    """The rows of ``metrics`` for all jobs together, and all nodes or one, of trials in ``done`` and of ``cells``.

    ``metrics`` as in ``docs/reference/records.md``; ``done`` has a column ``trial``, at most one for each cell and
    round.
    """
    text = pl.Categorical()
    rows = (
        metrics.lazy()
        .filter(
            pl.col("node").eq_missing(pl.lit(node, pl.String)), pl.col("job").is_null(), pl.col("cell").is_in(cells)
        )
        .join(done.lazy().select("trial"), on="trial", how="semi", maintain_order="left")
        .select(
            "cell", "round", pl.col("source", "metric", "unit", "better").cast(text), pl.col("value").cast(pl.Float64)
        )
        .collect()
    )
    place = {cell: index for index, cell in enumerate(cells)}
    series = (
        rows.lazy()
        .group_by(KEYS, maintain_order=True)
        .agg(pl.col("unit", "better").first())
        .sort(pl.col("cell").replace_strict(place, return_dtype=pl.Int64), maintain_order=True)
        .with_row_index("series")
        .collect()
    )
    values = rows.lazy().select(*KEYS, "round", "value").join(series.lazy(), on=KEYS)
    # Sorted, so that sums are the same to the last bit whenever a run is analysed again.
    return Recorded(
        series.with_columns(pl.col("source", "metric", "unit", "better").cast(pl.String)),
        values.select("series", "round", "value").sort("series", "round").collect(),
    )


_AS_THEY_ARE = ("cell", "source", "metric", "unit", "better", "median", "mean", "sd", "cv", "low", "high")

ROWS_AT_ONCE = 100_000
"""Ranks and scores take several times the memory of the values themselves."""


def estimates(
    recorded: Recorded,
    cells: Mapping[int, Levels],
    confidence: float,
    min_rounds: int,
    declared: Declarations,
    *,
    several: bool = False,
) -> tuple[Estimate, ...]:
    """One ``Estimate`` for each series of ``recorded`` that has a value; ``declared``: what its metrics are.

    Values that are null, NaN or infinite are left out, and a warning says in how many rounds. ``several``: machines did
    rounds, each at a speed of its own, so that neither drift nor outliers are looked for.
    """
    if recorded.values.is_empty():
        return ()
    statistics = pl.concat(_statistics(_with_scores(part)) for part in _parts(recorded.values))
    series = _with_limits(recorded.series, declared)
    table = _with_intervals(series.join(statistics, on="series", maintain_order="left"), 1 - confidence)
    return tuple(
        Estimate(
            **{name: row[name] for name in _AS_THEY_ARE},
            levels=cells[row["cell"]],
            rounds=row["n"],
            confidence=confidence,
            warnings=_warnings(row, min_rounds, several=several),
        )
        for row in table.iter_rows(named=True)
    )


def _parts(values: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """``values``, sorted by series, in parts of whole series and about ``ROWS_AT_ONCE`` rows."""
    begin = 0
    while begin < values.height:
        last = min(begin + ROWS_AT_ONCE, values.height) - 1
        end = values["series"].search_sorted(values["series"][last], side="right")
        yield values[begin:end]
        begin = end


def _with_scores(values: pl.DataFrame) -> pl.DataFrame:
    """``values`` (``series``, ``round``, ``value``) with what needs whole series: z-scores, ranks.

    Values are divided by ``scale``, a power of two near the largest, which is exact: squares of 1e300 or of 1e-300 are
    no floats.
    """
    value, distance = pl.col("value"), pl.col("distance")
    largest = value.abs().max().over("series")
    mad, deviation, floor = pl.col("mad"), pl.col("deviation"), pl.col("floor")
    robust = pl.when(mad > floor).then(MAD_TO_SD * distance / mad)
    z = robust.when(deviation > floor).then(MEAN_DEVIATION_TO_SD * distance / deviation).otherwise(0.0)
    return (
        values.with_columns(value=pl.when(value.is_finite()).then(value))
        .with_columns(scale=pl.when(largest > 0).then(pl.lit(2.0).pow(largest.log(2).floor())).otherwise(1.0))
        .with_columns(value=value / pl.col("scale"))
        .with_columns(distance=(value - value.median().over("series")).abs())
        .with_columns(
            mad=distance.median().over("series"),
            deviation=distance.mean().over("series"),
            floor=ROUNDING * value.abs().max().over("series"),
            rank=value.rank("average").over("series"),
            order=pl.when(value.is_not_null()).then(pl.col("round")).rank("ordinal").over("series"),
        )
        .select("series", "round", "value", "scale", "floor", "rank", "order", z=z)
    )


def _statistics(scored: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("value")
    return (
        scored.group_by("series", maintain_order=True)
        .agg(
            n=value.count().cast(pl.Int64),
            missing=value.null_count(),
            median=value.median(),
            least=value.min(),
            most=value.max(),
            mean=value.mean(),
            sd=value.std(),
            floor=pl.col("floor").first(),
            scale=pl.col("scale").first(),
            outliers=pl.col("round").filter(pl.col("z") > OUTLIER_Z).sort(),
            rho=pl.corr("rank", "order"),
        )
        .filter(pl.col("n") > 0)
        .with_columns(sd=pl.when(pl.col("sd") <= pl.col("floor")).then(0.0).otherwise(pl.col("sd")))
        .with_columns(
            cv=pl.when(pl.col("mean") != 0).then(pl.col("sd") / pl.col("mean").abs()),
            drift=pl.col("rho").fill_nan(0.0) * (pl.col("n") - 1).sqrt(),
        )
        .with_columns(pl.col("median", "least", "most", "mean", "sd") * pl.col("scale"))
        .with_columns(sd=pl.when(pl.col("sd").is_finite()).then("sd"))
    )


def _with_limits(series: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """``series`` with ``bottom`` and ``top``: the values between which each metric is."""
    kinds = series.select("source", "metric", "unit").unique()
    limits = [_spec(declared, *kind).limits for kind in kinds.iter_rows()]
    ends = pl.DataFrame(limits, schema={"bottom": pl.Float64, "top": pl.Float64}, orient="row")
    return series.join(kinds.hstack(ends), on=kinds.columns, how="left", maintain_order="left")


def _spec(declared: Declarations, source: str, metric: str, unit: str) -> MetricSpec:
    spec = declared[source].find(metric)
    return spec if spec.unit else MetricSpec(metric, unit, domain=domain_of(unit))


def _with_intervals(table: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """``table`` with ``low`` and ``high`` of the mean; null where ``n`` allows no interval, or none of floats.

    What lies beyond what a metric can be is cut off, unless a value contradicts its declaration. The interval holds the
    mean as often as before, as the mean is never there; and it stays one of the mean, which on a scale of logs, where
    it could not reach 0, it would not: that has the geometric mean, and no 0.
    """
    factors = pl.Series(width_factors(table["n"].to_numpy(), alpha))
    half = factors * pl.col("sd")
    half = pl.when(half.is_finite() & (pl.col("mean").abs() + half).is_finite()).then(half)
    low, high = pl.col("mean") - half, pl.col("mean") + half
    return table.with_columns(
        low=pl.when(pl.col("least") >= pl.col("bottom")).then(pl.max_horizontal(low, "bottom")).otherwise(low),
        high=pl.when(pl.col("most") <= pl.col("top")).then(pl.min_horizontal(high, "top")).otherwise(high),
    ).with_columns(pl.when(half.is_not_null()).then(pl.col("low", "high")))


def _warnings(row: Mapping[str, object], min_rounds: int, *, several: bool) -> tuple[AnyFinding, ...]:
    n, missing, drift, outliers = row["n"], row["missing"], row["drift"], row["outliers"]
    assert isinstance(n, int) and isinstance(missing, int) and isinstance(outliers, list)
    found: list[AnyFinding] = []
    if n < min_rounds:
        found.append(TooFewRounds(n, min_rounds))
    if missing:
        found.append(LeftOut("not finite", count=missing))
    if n > 1 and row["sd"] == 0:
        found.append(Constant("value"))
    if several:
        return tuple(found)
    if n >= OUTLIERS_FROM and outliers:
        found.append(Outliers(tuple(outliers)))
    if n >= DRIFT_FROM and isinstance(drift, float) and abs(drift) > DRIFT_Z:
        found.append(Drift("value", drift > 0))
    return tuple(found)


_SIDE_BY_SIDE: tuple[Key, ...] = ((f"{PROBE}stalls", "stall.longest"), (f"{PROBE}stalls", "machine.stall.longest"))
_OF_THE_HOST: tuple[Key, ...] = tuple(
    (f"{PROBE}host-load{end}", f"load.{span}") for end in ("", f"{END}{HOST}") for span in ("1m", "5m", "15m")
)


def node_estimates(
    metrics: pl.DataFrame, done: pl.DataFrame, design: Design, catalogue: Catalogue
) -> tuple[Estimate, ...]:
    """By node, in the order of their names: what is compared, and stalls; of the host its load averages.

    ``metrics`` as in ``docs/reference/records.md``; ``done`` has a column ``trial``, one for each cell and round.
    """
    cells = dict(design.cells)
    found: list[Estimate] = []
    rows = _wanted(metrics, [*_asked(design, catalogue), *_SIDE_BY_SIDE])
    several = rows.group_by("cell", "source", "metric").agg(pl.col("node").n_unique()).filter(pl.col("node") > 1)
    rows = rows.join(several, on=["source", "metric"], how="semi", maintain_order="left")
    hosts = _wanted(metrics.filter(pl.col("node") == HOST), _OF_THE_HOST)
    for part in (rows, hosts):
        for node in sorted(part["node"].unique(), key=numbered):
            recorded = collect(part, done, list(cells), node)
            of_node = estimates(recorded, cells, design.confidence, design.min_rounds, design.declared)
            found += [replace(estimate, node=node) for estimate in of_node]
    return tuple(found)


def numbered(name: str) -> list[tuple[str, int]]:
    """Sorts ``vm-2`` before ``vm-10``."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)]


def _asked(design: Design, catalogue: Catalogue) -> list[Key]:
    names = [design.primary, *(name for spec in design.planned() for name in spec.metrics or ())]
    found = [key for metrics in catalogue.metrics.values() for name in names for key in matching(name, metrics)]
    return list(dict.fromkeys(found))


def _wanted(metrics: pl.DataFrame, keys: list[Key] | tuple[Key, ...]) -> pl.DataFrame:
    wanted = pl.DataFrame(list(dict.fromkeys(keys)), schema={"source": pl.String, "metric": pl.String}, orient="row")
    single = metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null())
    return single.join(wanted, on=["source", "metric"], how="semi", maintain_order="left")


# Families whose members come and go, such as functions that wait: the members that matter, with zeros where they
# lack.
#
# A function that never waits for a lock has no row in that trial's metrics. Left out, its mean would be that of the
# trials in which it did wait, and no pair of rounds could tell that one level has it and the other does not. What is
# looked at is chosen for the run as a whole: chosen by trial, a member that another displaced there would look like
# 0.


def with_zeros(metrics: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """``metrics`` with a row of 0 for each member that another trial of the run has, of families that are declared so.

    Only in trials that have the family's total or another of its members: those were watched. Without the members that
    are among the ``foremost`` of no trial.
    """
    sources = [source for source, specs in declared.items() if any(spec.zero_if_absent for spec in specs)]
    own = metrics.filter(pl.col("source").is_in(sources), pl.col("node").is_null(), pl.col("job").is_null())
    if own.is_empty():
        return metrics
    told = own.select("source", "metric").unique()
    told = pl.DataFrame([(*row, *_family(declared, *row)) for row in told.iter_rows()], _TOLD, orient="row")
    own = own.join(told, on=["source", "metric"])
    members = own.filter(pl.col("family") != pl.col("metric"))
    idle = _never_foremost(members)
    metrics = metrics.join(idle, on=["source", "metric"], how="anti", maintain_order="left")
    members = members.join(idle, on=["source", "metric"], how="anti")
    described = [name for name in metrics.columns if name in ("unit", "better", "across")]
    names = members.group_by("source", "family", "metric").agg(pl.col(described).first())
    watched = own.select("trial", "cell", "round", "source", "family").unique()
    zeros = watched.join(names, on=["source", "family"]).join(own, on=["trial", "source", "metric"], how="anti")
    rows = zeros.with_columns(value=0.0).sort("trial", "metric").drop("family")
    return pl.concat([metrics, rows], how="diagonal_relaxed").select(metrics.columns)


_TOLD = {
    "source": pl.String, "metric": pl.String,
    "family": pl.String, "subject": pl.String, "foremost": pl.Int64, "least": pl.Float64,
}  # fmt: skip


def _family(declared: Declarations, source: str, metric: str) -> tuple[str | None, str, int, float]:
    """The total to which it belongs, ``waits`` of ``waits.mutex.vfs_write``; ``None`` of what is no such family's.

    And what it is a member by, and which members of that family are looked at.
    """
    spec = declared[source].find(metric)
    if spec.zero_if_absent and spec.subject:
        return metric.removesuffix(f".{spec.subject}"), spec.subject, spec.foremost, spec.least
    return (None if spec.subject else metric), "", 0, 0.0


def _never_foremost(members: pl.DataFrame) -> pl.DataFrame:
    """``source`` and ``metric`` of those to leave out. What a member is in one family, it is in all of its source."""
    place = pl.col("value").rank("ordinal", descending=True).over("trial", "source", "family")
    ranked = members.filter(pl.col("foremost") > 0)
    foremost = ranked.filter(place <= pl.col("foremost"), pl.col("value") >= pl.col("least"))
    chosen = members.join(ranked.select("source").unique(), on="source", how="semi")
    return chosen.join(foremost, on=["source", "subject"], how="anti").select("source", "metric").unique()
