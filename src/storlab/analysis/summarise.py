"""From a run's tables to its summary: states of cells, estimates, comparisons with verdicts, and how all was made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from storlab.analysis import sweeps
from storlab.analysis.block import block_io, histograms_of
from storlab.analysis.claims import Judged, answered, value_keys
from storlab.analysis.design import Design, machines_of_rounds
from storlab.analysis.effects import effects_of
from storlab.analysis.estimates import KEYS, Recorded, collect, estimates, node_estimates, numbered, with_zeros
from storlab.analysis.judging import Case, answers, cases, family_of, parse_gate, rests_of
from storlab.analysis.questions import Catalogue, Planned, Trait, matching, plan
from storlab.analysis.stats.anytime import EFFECT_VARIANCE, Floats
from storlab.analysis.stats.pairing import Pairs, Rounds, Side, pair, pool
from storlab.analysis.stopping import steady_state
from storlab.analysis.summary import (
    CellState,
    CellStatus,
    Comparison,
    Distribution,
    Estimate,
    Method,
    Percentile,
    Summary,
)
from storlab.analysis.why.differences import Asked, explained
from storlab.analysis.why.watched import Watch
from storlab.findings import About
from storlab.metrics import PERCENTILES, Declarations, Key
from storlab.percentiles import between, edges_at, nearest_rank

_KEYS = ("cell", "source", "metric", "node")
UNIT = "s"


def distributions(
    histograms: pl.DataFrame | None, metrics: pl.DataFrame, done: pl.DataFrame, design: Design
) -> tuple[Distribution, ...]:
    """Of every histogram of latencies, by cell in the design's order; nodes by themselves where there are several.

    All frames as in ``docs/reference/records.md``; ``done`` has a column ``trial``, one for each cell and round.
    A source's own histogram of all its jobs is taken where it has one, and else those of its jobs are added.
    """
    if histograms is None or histograms.is_empty():
        return ()
    cells = dict(design.cells)
    latencies = histograms_of(design.declared, histograms, "latency")
    bins = _bins(histograms, latencies, done, list(cells))
    of = ["cell", "source", "metric"]
    several = bins.group_by(of).agg(pl.col("node").n_unique()).filter(pl.col("node") > 1)
    nodes = bins.join(several, on=of, how="semi")
    together = bins.with_columns(node=pl.lit(None, pl.String))
    slowest, rounds = _slowest(metrics, latencies, design.declared, done), _rounds(histograms, done)
    found = [
        Distribution(
            **{name: row[name] for name in (*_KEYS, "operations")},
            levels=dict(cells[row["cell"]]),
            unit=UNIT,
            rounds=rounds[row["cell"], row["source"], row["metric"]],
            percentiles=_percentiles(row, slowest.get(tuple(row[name] for name in _KEYS))),
        )
        for part in (together, nodes)
        for row in _edges(part)
    ]
    place = {cell: at for at, cell in enumerate(cells)}
    found.sort(key=lambda each: (place[each.cell], each.source, each.metric, numbered(each.node or "")))
    return tuple(found)


def _bins(histograms: pl.DataFrame, latencies: pl.DataFrame, done: pl.DataFrame, cells: Sequence[int]) -> pl.DataFrame:
    """Bins of all rounds: ``_KEYS``, ``lower``, ``upper``, ``count``."""
    rows = (
        histograms.lazy()
        .filter(pl.col("cell").is_in(cells), pl.col("count") > 0)
        .join(latencies.lazy(), on=["source", "metric"], how="semi")
        .join(done.lazy().select("trial"), on="trial", how="semi")
    )
    of = ["trial", *_KEYS]
    whole, jobs = rows.filter(pl.col("job").is_null()), rows.filter(pl.col("job").is_not_null())
    alone = jobs.join(whole.select(of).unique(), on=of, how="anti", nulls_equal=True)
    return pl.concat([whole, alone]).group_by(*_KEYS, "lower", "upper").agg(pl.col("count").sum()).collect()


def _rounds(histograms: pl.DataFrame, done: pl.DataFrame) -> dict[tuple[int, str, str], int]:
    had = histograms.lazy().filter(pl.col("count") > 0).join(done.lazy().select("trial"), on="trial", how="semi")
    rounds = had.group_by("cell", "source", "metric").agg(pl.col("round").n_unique()).collect()
    return {(cell, source, metric): n for cell, source, metric, n in rounds.iter_rows()}


def _edges(bins: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """For each of ``_KEYS``: ``operations``, ``most`` (the last bin's end), ``low`` and ``high`` of each percentile."""
    if bins.is_empty():
        return
    own = bins.group_by(_KEYS).agg(operations=pl.col("count").sum(), most=pl.col("upper").max()).sort(_KEYS)
    rows = bins.join(own.with_row_index("of"), on=_KEYS, nulls_equal=True)
    of, lower, upper, counts = (rows[name].to_numpy() for name in ("of", "lower", "upper", "count"))
    _, low, high = edges_at(of.astype(np.int64), lower, upper, counts, PERCENTILES)
    for at, row in enumerate(own.iter_rows(named=True)):
        ranks = [nearest_rank(p, row["operations"]) for p in PERCENTILES]
        yield {**row, "low": low[at], "high": high[at], "ranks": ranks}


def _percentiles(row: Mapping[str, Any], slowest: float | None) -> tuple[Percentile, ...]:
    found = []
    for p, begin, end, rank in zip(PERCENTILES, row["low"], row["high"], row["ranks"], strict=True):
        bounds = between(float(begin), float(end))
        value, high = bounds.value, slowest
        if math.isinf(bounds.high):
            value = bounds.low
        elif slowest is None or end < row["most"]:
            high = bounds.high
        else:
            high = max(bounds.high, slowest)
        found.append(Percentile(p, value, bounds.low, high, row["operations"] - rank))
    return tuple(found)


def _slowest(
    metrics: pl.DataFrame, latencies: pl.DataFrame, declared: Declarations, done: pl.DataFrame
) -> dict[tuple[object, ...], float]:
    names = [(source, of, declared[source].statistic(of, "max")) for source, of, *_ in latencies.iter_rows()]
    most = pl.DataFrame(names, schema=dict.fromkeys(("source", "of", "metric"), pl.String), orient="row")
    rows = (
        metrics.filter(pl.col("job").is_null())
        .join(most, on=["source", "metric"])
        .join(done.select("trial"), on="trial", how="semi")
        .with_columns(metric=pl.col("of"))
        .group_by(_KEYS)
        .agg(pl.col("value").max())
    )
    return {tuple(key): value for *key, value in rows.iter_rows() if value is not None}


Series = Mapping[tuple[int, Key], tuple[Rounds, Floats]]
"""Rounds and values of one metric in one cell, by cell and key."""


def summarise(
    trials: pl.DataFrame,
    metrics: pl.DataFrame,
    design: Design,
    *,
    histograms: pl.DataFrame | None = None,
    requests: pl.DataFrame | None = None,
    ended: bool = False,
) -> Summary:
    """The summary of a run. All frames as in ``docs/reference/records.md``; the last two may be left out.

    They are for latencies and block I/O. Of ``metrics`` only the rows of all nodes and jobs together (``node`` and
    ``job`` null) of trials that are done count. Where a cell has several done trials in one round, the last one counts.
    ``ended``: with effects of factors, and what differs underneath, which may take a second and are of no use before a
    run has ended.
    """
    optional = [name for name in ("measured", "host", "block") if name in trials.columns]
    trials = trials.select("trial", "round", "cell", "status", "reason", *optional)
    states = cell_states(trials, design)
    done = trials.filter(pl.col("status") == "done").sort("trial").unique(["cell", "round"], keep="last")
    rounds = rounds_done(trials, states)
    metrics = with_zeros(metrics, design.declared)
    recorded = collect(metrics, done, [cell for cell, _ in design.cells])
    steady = steady_state(recorded, design)
    if steady.since > 1:
        reported = pl.col("round") >= steady.since
        trials, done = trials.filter(reported | (pl.col("status") == "unsupported")), done.filter(reported)
        states = cell_states(trials, design)
        recorded = collect(metrics, done, [cell for cell, _ in design.cells])
    catalogue = _catalogue(recorded, done, states, design.declared)
    planned = plan(design, catalogue)
    then = {
        after: plan(design, _catalogue(*_until(after, recorded, done), states, design.declared))
        for after in sorted({design.rests_after[cell] for cell, _ in design.cells if cell in design.rests_after})
    }
    values = [*value_keys(design, catalogue), *sweeps.keys(design, catalogue)]
    sides = _sides(recorded, done, [item for each in (planned, *then.values()) for item in each], values)
    of_failed = trials.filter(pl.col("status") == "failed").group_by("cell").agg(pl.col("round").unique())
    failed = {cell: np.array(rounds, dtype=np.int64) for cell, rounds in of_failed.iter_rows()}
    hosts = machines_of_rounds(done)
    rules = design.confidence, design.min_rounds
    found = estimates(recorded, dict(design.cells), *rules, design.declared, several=bool(hosts))
    rests = design.rests_after

    def pairs_of(item: Planned, until: int | None) -> Pairs | None:
        pairs = _pairs(item, sides, failed, until)
        return replace(pairs, hosts=hosts) if pairs and hosts else pairs

    asked = [(item, pairs_of(item, rests_of(item, rests))) for item in planned]
    earlier = {after: [(item, pairs_of(item, after)) for item in items] for after, items in then.items()}
    judged = cases(asked, 1 - design.confidence, earlier, rests, design.bet)
    gates = [parse_gate(text) for text in design.gates]
    comparisons = answers(judged, design.confidence, design.min_rounds, gates, steady.lacking, design.bet)
    if ended:
        watch = Watch(recorded, done, design.declared, design.partial)
        comparisons = explained(comparisons, [_judged_by(case) for case in judged], watch, design.settings, 0.95)
    judges = ended and steady.lacking is None
    claims = answered(design, Judged(judged, comparisons, catalogue, sides, failed, unsteady=steady.lacking))
    swept = sweeps.found(design, catalogue, sides, failed, steady.lacking)
    return Summary(
        title=design.title,
        primary=design.primary,
        confidence=design.confidence,
        rounds_done=rounds,
        stopped=design.stopped,
        cells=states,
        estimates=found,
        comparisons=tuple(comparisons),
        warnings=design.warnings,
        method=_method(design, found, comparisons, family_of(asked), steady.since),
        facts=dict(design.facts),
        family=family_of(asked),
        by_node=node_estimates(metrics, done, design, catalogue),
        block_io=block_io(requests, histograms, done, design),
        distributions=distributions(histograms, metrics, done, design),
        effects=effects_of(recorded, design, _asked(design, catalogue, planned), _blocks(trials)) if judges else (),
        claims=claims,
        sweeps=swept.sweeps,
        knees=swept.knees,
        objectives=swept.objectives,
        steady=steady.windows,
        reported_since=steady.since,
        unsteady=steady.lacking,
    )


def _judged_by(case: Case) -> Asked | None:
    q, pairs = case.item.question, case.pairs
    if pairs is None or pairs.problem:
        return None
    return Asked(case.item.cells, (q.source, q.metric), pairs.rounds.tolist(), pairs.log_ratios)


def _blocks(trials: pl.DataFrame) -> dict[int, int]:
    """Cell → block, of those that share what is set up once a round."""
    if "block" not in trials.columns:
        return {}
    return dict(trials.select("cell", "block").drop_nulls().unique().iter_rows())


def _asked(design: Design, catalogue: Catalogue, planned: list[Planned]) -> list[Key]:
    primary = [key for metrics in catalogue.metrics.values() for key in matching(design.primary, metrics)]
    compared = [(item.question.source, item.question.metric) for item in planned if item.question.source]
    return list(dict.fromkeys([*primary, *compared]))


def cell_states(trials: pl.DataFrame, design: Design) -> tuple[CellState, ...]:
    """What became of each cell, in the order of the design. ``trials``: ``cell``, ``status``, ``reason``."""
    sums = ((pl.col("status") == status).sum().alias(status) for status in ("done", "failed", "unsupported"))
    reasons = pl.col("reason").drop_nulls().unique(maintain_order=True).alias("reasons")
    counts = {row["cell"]: row for row in trials.group_by("cell").agg(*sums, reasons).iter_rows(named=True)}
    none = {"done": 0, "failed": 0, "unsupported": 0, "reasons": []}
    rests = {rest.cell: rest for rest in design.rests}
    states = []
    for cell, levels in design.cells:
        row = counts.get(cell, none)
        status = _status(row["done"], row["failed"], row["unsupported"])
        found = CellState(cell, dict(levels), status, row["done"], row["failed"], tuple(row["reasons"]))
        rest = rests.get(cell)
        states.append(replace(found, rests_after=rest.after, rests_because=rest.why) if rest else found)
    return tuple(states)


def _status(done: int, failed: int, unsupported: int) -> CellStatus:
    if done:
        return "partly failed" if failed else "measured"
    if failed:
        return "failed"
    return "unsupported" if unsupported else "not run"


def rounds_done(trials: pl.DataFrame, states: tuple[CellState, ...]) -> int:
    """Rounds in which every cell that was due, and is supported here, has a trial that ended, done or failed."""
    last = {state.cell: state.rests_after or math.inf for state in states if state.status != "unsupported"}
    ended = trials.filter(pl.col("status").is_in(["done", "failed"]), pl.col("cell").is_in(list(last)))
    cells = ended.group_by("round").agg(pl.col("cell").unique())
    return sum({cell for cell in last if number <= last[cell]} <= set(ran) for number, ran in cells.iter_rows())


def _catalogue(
    recorded: Recorded, done: pl.DataFrame, states: tuple[CellState, ...], declared: Declarations
) -> Catalogue:
    found: dict[int, dict[Key, Trait]] = {cell: {} for cell in done["cell"].unique().to_list()}
    columns = recorded.series.select("cell", "source", "metric", "unit", "better")
    for cell, source, metric, unit, better in columns.iter_rows():
        found[cell][source, metric] = Trait.of(declared[source].find(metric), unit, better)
    unsupported = {s.cell: " ".join(s.reasons) for s in states if s.status == "unsupported"}
    return Catalogue(found, unsupported, {s.cell: s.reasons[0] for s in states if s.status == "failed" and s.reasons})


def _until(after: int, recorded: Recorded, done: pl.DataFrame) -> tuple[Recorded, pl.DataFrame]:
    values = recorded.values.filter(pl.col("round") <= after)
    series = recorded.series.filter(pl.col("series").is_in(values["series"].unique().implode()))
    return Recorded(series, values), done.filter(pl.col("round") <= after)


def _sides(
    recorded: Recorded, done: pl.DataFrame, planned: list[Planned], further: list[tuple[int, str, str]]
) -> Series:
    """The series that comparisons need, and ``further`` ones, in order of the rounds; NaN in done rounds without the
    metric."""
    compared = (
        (cell, item.question.source, item.question.metric) for item in planned for both in item.cells for cell in both
    )
    cells_and_keys = dict.fromkeys((*compared, *further))
    columns = {"cell": pl.Int64, "source": pl.String, "metric": pl.String}
    wanted = pl.DataFrame(list(cells_and_keys), schema=columns, orient="row")
    series = recorded.series.join(wanted, on=KEYS).select("series", *KEYS)
    values = recorded.values.filter(pl.col("series").is_in(series["series"].implode()))
    full = (
        series.join(done.select("cell", "round"), on="cell")
        .join(values, on=["series", "round"], how="left")
        .sort("round")
        .with_columns(pl.col("value").fill_null(float("nan")))
        .group_by(KEYS)
        .agg("round", "value")
    )
    return {
        (cell, (source, metric)): (np.array(rounds, dtype=np.int64), np.array(values, dtype=np.float64))
        for cell, source, metric, rounds, values in full.iter_rows()
    }


def _pairs(item: Planned, sides: Series, failed: Mapping[int, Rounds], until: int | None) -> Pairs | None:
    """``None`` where there can be none yet, or ever. ``until``: the last round that counts."""
    question = item.question
    if item.problem or item.waiting:
        return None
    key = (question.source, question.metric)

    def one(name: str, cell: int) -> Side:
        side = replace(Side(name, *sides.get((cell, key), ())), counts=item.counts)
        side = replace(side, failed=failed[cell]) if cell in failed else side
        return side if until is None else side.until(until)

    parts = [
        replace(part, problem=About("combinations", (name,), part.problem)) if name and part.problem else part
        for name, (a, b) in zip(item.names, item.cells, strict=True)
        for part in [pair(one(question.a, a), one(question.b, b))]
    ]
    pairs = pool(parts, item.names) if question.pooled else parts[0]
    return replace(pairs, warnings=(*item.warnings, *pairs.warnings))


def _method(
    design: Design, estimates: Sequence[Estimate], comparisons: Sequence[Comparison], family: int, since: int
) -> Method | None:
    """``family``: how many comparisons there are. ``since``: the first round that counts."""
    if not estimates:
        return None
    compared = any(c.ratio is not None for c in comparisons)
    return Method(
        "compared" if compared else "described" if any(e.low is not None for e in estimates) else "single",
        EFFECT_VARIANCE,
        design.confidence,
        family,
        design.min_rounds,
        drawn=not design.order,
        rested=bool(design.rests),
        since=since if design.steady else None,
        planned=None if design.bet is None else design.bet.last,
    )
