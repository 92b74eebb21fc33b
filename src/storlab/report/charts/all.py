"""All charts of a report, in its order: from the summary and the tables to panels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial

import polars as pl

from storlab.analysis.block import histograms_of
from storlab.analysis.summary import Estimate
from storlab.base.text import grouped
from storlab.report.charts.curves import interaction_chart, main_effects_chart
from storlab.report.charts.panel import Combination, Panel, all_levels, combinations, file_stem, panel
from storlab.report.charts.sample_panels import course_panels, percentile_panels, series_panels, variability_panels
from storlab.report.charts.samples import Sampled, sampled
from storlab.report.charts.shares import bars_chart, icicle_chart, sizes_chart
from storlab.report.charts.sweep_panels import sweep_panels
from storlab.report.charts.theme import MOST_LINES
from storlab.report.charts.whole_trials import latency_chart, paired_chart, percentile_curve, rounds_chart
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model import block, factors
from storlab.report.model.chapters import profile_title, tops
from storlab.report.model.input import ReportInput, compared_factor, for_people, per_trial
from storlab.report.model.questions import Values, questions_of, sentence, title_of
from storlab.report.model.tables import MANY


class _Gallery:
    def __init__(self, given: ReportInput) -> None:
        given = for_people(given)
        self.given, self.taken = given, set[str]()
        self.factor = compared_factor(given.summary)
        self.levels = all_levels(given.summary, self.factor)
        self.combinations = combinations(given.summary)
        self.estimates = {(e.cell, e.source, e.metric): e for e in given.summary.estimates}

    def name(self, kind: str, title: str) -> str:
        return file_stem(kind, [title], self.taken)

    def paired(self) -> Iterator[Panel]:
        values = Values(self.given.summary, self.given)
        for question in questions_of(self.given.summary):
            title, spans = title_of(question), [values.span(c) for c in question]
            draw = partial(paired_chart, question, spans)
            alt = f"Ratios round by round. {' '.join(map(sentence, question))}"
            # The page has the same in the rows of its tables.
            yield panel("questions", self.name("paired", title), "", title, alt, draw, file=True)

    def rounds(self) -> Iterator[Panel]:
        if any(sweep.factor == self.factor for sweep in self.given.summary.sweeps):
            return  # the curves show the same cells with their intervals
        for combination in self.combinations:
            estimates = self._estimates(combination)
            values = per_trial(self.given.metrics, combination.source, combination.metric)
            points = _with_level(values, combination)
            if len(estimates) == 1 and points.height == 1:  # which the table says better
                continue
            draw = partial(rounds_chart, points, estimates, self.factor, self.levels)
            means = words.listed([f"{level} {_mean(e)}" for level, e in estimates.items()])
            alt = f"One point a round, with mean and interval. {combination.metric}: {means}."
            yield panel("measured", self.name("rounds", combination.title), "", combination.title, alt, draw)

    def _estimates(self, combination: Combination) -> dict[str, Estimate]:
        keys = {level: (cell, combination.source, combination.metric) for level, cell in combination.cells.items()}
        return {level: self.estimates[key] for level, key in keys.items()}

    @cached_property
    def sampled(self) -> list[Sampled]:
        """Every primary metric under every load, or its parts, as ``write.bandwidth``, where there are series of it."""
        found = (
            sampled(self.given, replace(each, metric=metric), self.levels)
            for each in self.combinations
            for metric in self._series_of(each)
        )
        return [each for each in found if each is not None]

    def _series_of(self, combination: Combination) -> list[str]:
        found = self.given.series.filter(source=combination.source)["metric"].unique(maintain_order=True).to_list()
        if combination.metric in found:
            return [combination.metric]
        specs = self.given.declared[combination.source]
        return [metric for metric in found if specs.find(metric).total == combination.metric]

    def course(self) -> Iterator[Panel]:
        for of in self.sampled:
            yield from course_panels(of, self.taken)

    def percentiles(self) -> Iterator[Panel]:
        places = self.given.series.select("source", "metric", "cell").unique(maintain_order=True)
        specs = ((source, self.given.declared[source].find(name), cell) for source, name, cell in places.iter_rows())
        found = grouped(((source, spec.of), cell) for source, spec, cell in specs if spec.percentile is not None)
        for (source, latency), cells in found.items():
            for within, those in self._by_load(pl.Series(cells)).items():
                of = Combination(source, latency, "s", "lower", within, those)
                yield from percentile_panels(self.given, of, self.levels, self.taken)

    def series(self) -> Iterator[Panel]:
        for of in self.sampled:
            yield from series_panels(of, self.taken)

    def variability(self) -> Iterator[Panel]:
        for of in self.sampled:
            yield from variability_panels(of, self.taken)

    def latency(self) -> Iterator[Panel]:
        histograms = self.given.histograms
        kinds = histograms_of(self.given.declared, histograms.sort("cell"), "latency")
        shown: list[pl.DataFrame] = []
        for source, metric, *_ in kinds.iter_rows():
            own = histograms.filter(source=source, metric=metric)
            for within, cells in self._by_load(own["cell"]).items():
                together = pl.concat(
                    percentile_curve(own, cell, source, metric).with_columns(level=pl.lit(level))
                    for level, cell in cells.items()
                )
                # A log axis shows nothing of bins that end at 0 or never. A load that only writes has the same
                # histogram as "latency" and as "write.latency": one chart of it is enough.
                if together.height and not any(together.equals(other) for other in shown):
                    shown.append(together)
                    yield self._latency(together, Combination(source, metric, "s", "lower", within, {}))

    def _by_load(self, having: pl.Series) -> dict[tuple[tuple[str, str], ...], dict[str, int]]:
        """Levels of all factors but the compared one → its level → cell, of these cells: those that share a chart.

        Where there are more levels than a chart tells apart, each has some of them: "4k to 256k".
        """
        levels_of = {cell.cell: cell.levels for cell in self.given.summary.cells}
        charts = math.ceil(len(self.levels) / MOST_LINES)
        most = math.ceil(len(self.levels) / charts)
        loads: dict[tuple[tuple[str, str], ...], dict[str, int]] = {}
        for cell in having.unique().sort():
            levels = levels_of.get(cell, {})
            level = levels.get(self.factor, "all")
            within = tuple((name, level) for name, level in levels.items() if name != self.factor)
            if charts > 1:
                begin = self.levels.index(level) // most * most
                part = self.levels[begin : begin + most]
                within = (*within, (self.factor, f"{part[0]} to {part[-1]}"))
            loads.setdefault(within, {})[level] = cell
        return loads

    def _latency(self, curves: pl.DataFrame, combination: Combination) -> Panel:
        draw = partial(latency_chart, curves, self.factor, self.levels)
        shown = words.listed(list(dict.fromkeys(curves["level"])))
        alt = f"{combination.metric} by percentile, all rounds merged, of {shown}."
        return panel("latency", self.name("latency", combination.title), "", combination.title, alt, draw)

    def sweeps(self) -> Iterator[Panel]:
        yield from sweep_panels(self.given.summary, self.taken)

    def block(self) -> Iterator[Panel]:
        for group in block.groups(self.given.summary):
            for name, what in (("lengths", "length"), ("alignments", "alignment of length and offset")):
                shares = {level: getattr(row, name) for level, row in group.rows.items() if getattr(row, name)}
                if shares:
                    levels = list(group.grid.cells)
                    unit = next(iter(group.rows.values())).unit
                    draw = partial(sizes_chart, shares, levels, unit, what, group.absent)
                    title = f"By {what}"
                    stem = self.name("block", f"{group.name}-{name}")
                    words_for_it = block.in_words(group, name)
                    place = "block" if group.operation in block.MAIN else "block-details"
                    yield panel(place, stem, group.name, title, words_for_it, draw)
                if 1 < len(shares) <= MOST_LINES:
                    draw = partial(bars_chart, shares, group.grid.factor, what)
                    stem = self.name("block", f"{group.name}-{name}-side-by-side")
                    place = place if len(shares) <= 3 else "block-details"
                    yield panel(place, stem, group.name, f"By {what}, side by side", words_for_it, draw)

    def profiles(self) -> Iterator[Panel]:
        for each in self.given.profiles:
            title = profile_title(each, self.given.profiles)
            draw = partial(icicle_chart, each.boxes)
            alt = f"Shares of CPU by stack, callers above what they call: {tops(each)}."
            yield panel("cpus", self.name("profile", title), "", title, alt, draw, wide=True)

    def effects(self) -> Iterator[Panel]:
        for found in self.given.summary.effects:
            title = factors.title(found)
            if found.main:
                told = f"Means of levels of {words.listed(found.factors)}. Shares: {factors.in_words(found) or 'none'}."
                stem = self.name("effects", f"{title}-main")
                yield panel("effects", stem, title, "Main effects", told, partial(main_effects_chart, found))
            for across, by in itertools.combinations(found.factors, 2):
                means = [mean for mean in found.pairs if mean.levels.keys() == {across, by}]
                if len({mean.levels[by] for mean in means}) > MOST_LINES:
                    across, by = by, across
                draw = partial(interaction_chart, found, means, across, by)
                stem = self.name("effects", f"{title}-{across}-{by}")
                told = f"{found.metric} by {across}, a line for each {by}: parallel where they do not interact."
                if means and len({mean.levels[by] for mean in means}) <= MOST_LINES:
                    yield panel("effects", stem, title, f"{across} × {by}", told, draw)


def _with_level(values: pl.DataFrame, combination: Combination) -> pl.DataFrame:
    columns = {"cell": list(combination.cells.values()), "level": list(combination.cells)}
    return values.join(pl.DataFrame(columns, schema={"cell": pl.Int64, "level": pl.String}), on="cell")


def _mean(e: Estimate) -> str:
    span = fmt.interval(e.low, e.high, e.unit, e.mean)
    return f"{fmt.quantity(e.mean, e.unit, e.low, e.high)} ({span or 'no interval'})"


_FIRST = 2
"""Charts of each kind of a run of many cells, unless all are asked for: drawing them takes longer than all else."""


def all_panels(given: ReportInput, *, full: bool = False) -> Iterator[Panel]:
    """Paired ratios, rounds, sizes of block requests, series, their variability, and latencies."""
    of = _Gallery(given)
    drawn = [of.paired, of.sweeps, of.rounds, of.effects, of.block]
    drawn += [of.course, of.percentiles, of.series, of.variability, of.latency, of.profiles]
    most = None if full or len(given.summary.cells) <= MANY else _FIRST
    for panels in drawn:
        yield from itertools.islice(panels(), most)
