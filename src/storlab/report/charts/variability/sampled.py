"""Samples of one metric under one load, with what charts of them share: unit, colours of levels, axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import altair as alt
import polars as pl

from storlab.analysis import variability as within
from storlab.metrics import CHECKPOINT, WHISKERS, without_end
from storlab.report.charts.panel import Combination
from storlab.report.charts.theme import COLOURS, PLAIN, above_rows, axis_title, of, title_of
from storlab.report.language import format as fmt
from storlab.report.model.input import ReportInput, across_of, compared_factor
from storlab.timeseries.variability import HOUR, LONG, whiskers_of


@dataclass(frozen=True)
class Axes:
    """``levels``: all of ``factor`` that the report knows, for their colours; ``shown``: those in this chart."""

    metric: str
    unit: fmt.Scale
    factor: str
    levels: Sequence[str]
    shown: Sequence[str]

    @property
    def told_apart(self) -> bool:
        places = {self.levels.index(level) % len(COLOURS) for level in self.shown}
        return len(places) == len(self.shown)

    def colour(self, *, legend: bool = True) -> alt.Color:
        legend = legend and len(self.shown) > 1
        shown = alt.Legend(title=title_of(self.factor), values=list(self.shown), symbolOpacity=1) if legend else None
        return alt.Color("level:N", scale=of(list(self.levels), COLOURS), legend=shown)

    def beside(self, hint: str = "") -> str:
        """The unit alone, for the short side of a chart: its heading names the metric."""
        return ", ".join(part for part in (self.unit.symbol or self.metric, hint) if part)

    def title(self, hint: str = "") -> str:
        return axis_title(self.metric, self.unit, hint)

    def rows(self) -> alt.Y:
        return alt.Y("level:N", sort=list(self.shown), axis=above_rows(self.factor))

    def values(self, column: str, hint: str = "") -> alt.X:
        """The metric along the bottom, over the range of its samples."""
        title = self.title(", ".join(filter(None, ("not from zero", hint))))
        return alt.X(f"{column}:Q", title=title, scale=alt.Scale(zero=False, nice=False), axis=PLAIN)


@dataclass(frozen=True)
class Clock:
    """The axis of time: seconds, or hours where a trial is longer than two of them."""

    duration: float

    @property
    def unit(self) -> float:
        return HOUR if self.duration > LONG else 1.0

    def axis(self, column: str) -> alt.X:
        name = "h" if self.unit == HOUR else "s"
        scale = alt.Scale(domain=[0, self.duration / self.unit], nice=False)
        return alt.X(f"{column}:Q", title=f"time in the trial ({name})", scale=scale, axis=alt.Axis(grid=False))


_STEPS = 240  # of a course: finer than that is finer than the pixels
_FEWEST = 40  # samples of a level, for a distribution
_INSTANTS, _SECONDS = 10, 2.0  # of fewer, or in less, there is no course


_NO_MARKS = pl.DataFrame(schema={"level": pl.String, "t": pl.Float64})


@dataclass(frozen=True)
class Sampled:
    """``samples``: ``level, round, t, value``, in display units; ``findings``: what was found in these trials.

    ``checkpoints``: ``level, t`` of those of a database under this load, of all rounds; ``t`` in the clock's unit.
    ``whiskers``: interquartile ranges from the quartiles, beyond which samples are outliers.
    """

    combination: Combination
    samples: pl.DataFrame
    findings: pl.DataFrame
    axes: Axes
    clock: Clock
    checkpoints: pl.DataFrame = field(default_factory=lambda: _NO_MARKS)
    whiskers: float = WHISKERS

    @property
    def lasts(self) -> bool:
        """Whether there is enough of it over time for a chart."""
        return self.samples["t"].n_unique() >= _INSTANTS and self.clock.duration >= _SECONDS

    @cached_property
    def rounds(self) -> list[int]:
        return sorted(self.samples["round"].unique().to_list())

    @property
    def alone(self) -> bool:
        return len(self.rounds) == 1

    @cached_property
    def many(self) -> pl.DataFrame:
        """Samples of the levels that have enough of them for a distribution."""
        return self.samples.filter(pl.len().over("level") >= _FEWEST)

    @cached_property
    def comparable(self) -> list[str]:
        present = set(self.many["level"])
        return [level for level in self.axes.shown if level in present]

    @cached_property
    def densities(self) -> pl.DataFrame:
        return within.densities(self.many)

    @cached_property
    def bells(self) -> pl.DataFrame:
        return within.bells(self.many)

    @cached_property
    def course(self) -> pl.DataFrame:
        """``level, t, mean, low, high`` of all levels over time, which is in the clock's unit."""
        step = max(self.clock.duration / _STEPS, within.interval(self.samples))
        found = within.over_time(self.samples, step)
        return (found if self.alone else within.over_rounds(found)).with_columns(pl.col("t") / self.clock.unit)

    @cached_property
    def levels_in_time(self) -> pl.DataFrame:
        """``level, begin, end, mean``: from one change of the level to the next; none for several rounds."""
        rows: list[tuple[str, float, float, float]] = []
        names = {cell: level for level, cell in self.combination.cells.items()}
        hour, unit = self.clock.unit, self.axes.unit.factor
        for each in self.findings.iter_rows(named=True) if self.alone else ():
            changes = each["changes"]
            begins = [0.0, *(change["t"] for change in changes)]
            ends = [*begins[1:], float(each["duration"])]
            means = [changes[0]["before"] if changes else each["mean"], *(change["after"] for change in changes)]
            for begin, end, mean in zip(begins, ends, means, strict=True):
                rows.append((names[each["cell"]], begin / hour, end / hour, mean / unit))
        schema = {"level": pl.String, "begin": pl.Float64, "end": pl.Float64, "mean": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")


def sampled(
    given: ReportInput, combination: Combination, levels: Sequence[str], across: str | None = None
) -> Sampled | None:
    """The samples of the combination's metric; ``None`` where there are none. ``levels``: all of the report.

    ``across``: how values of nodes combine, where that isn't for the metrics to say.
    """
    source, metric = combination.source, combination.metric
    across = across or across_of(given.metrics, source, metric)
    rows = within.samples(given.series, source, metric, across, combination.cells)
    if rows.is_empty():
        return None
    unit = fmt.scale(float(str(rows["value"].abs().max())), combination.unit)
    present = set(rows["level"])
    cells = list(combination.cells.values())
    clock = Clock(float(str(rows["t"].max())) or 1.0)
    return Sampled(
        combination,
        rows.with_columns(pl.col("value") / unit.factor),
        given.findings.filter(pl.col("cell").is_in(cells), source=source, metric=metric),
        Axes(metric, unit, compared_factor(given.summary), levels, [level for level in levels if level in present]),
        clock,
        _checkpoints(given, combination, clock),
        whiskers_of(given.declared[source], metric),
    )


def _checkpoints(given: ReportInput, combination: Combination, clock: Clock) -> pl.DataFrame:
    source, metric = CHECKPOINT
    sources = [each for each in given.series["source"].unique() if without_end(each) == source]
    levels = {cell: level for level, cell in combination.cells.items()}
    marks = given.series.filter(pl.col("cell").is_in(list(levels)) & pl.col("source").is_in(sources), metric=metric)
    level = pl.col("cell").replace_strict(levels, return_dtype=pl.String)
    shown = marks.filter(pl.col("t") <= clock.duration)
    return shown.select(level.alias("level"), pl.col("t") / clock.unit) if shown.height else _NO_MARKS
