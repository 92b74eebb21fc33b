"""Samples within trials, with the axes that charts of them share: over time, as distributions, one against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import altair as alt
import polars as pl

from storlab.analysis import variability as within
from storlab.metrics import CHECKPOINT, WHISKERS, without_end
from storlab.report.charts.panel import Combination
from storlab.report.charts.theme import COLOURS, INK, PLAIN, SOFT, Chart, above_rows, axis_title, log_axis, of, title_of
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


# Charts of samples, of several levels in one: over the time of a trial, their distributions, one against another.

_HEIGHT, _COURSE = 220, 240
_SHARE = "samples in a bin (%)"
_ROW, _AXIS = 64, 46  # px a level, and for the axis below


def histogram_chart(bins: pl.DataFrame, axes: Axes, curves: pl.DataFrame | None = None) -> Chart:
    """``bins``: ``level, low, high, share``. ``curves``: ``level, value, density``, drawn over them on their scale."""
    bars = bins.select("level", "low", "high", share=100 * pl.col("share"))
    y = alt.Y("share:Q", title=_SHARE, scale=alt.Scale(zero=True), axis=PLAIN)
    x = axes.values("low")
    layers: list[alt.Chart] = [
        alt.Chart(bars.filter(pl.col("share") > 0))
        .mark_rect(fillOpacity=0.4, stroke=None)
        .encode(x=x, x2=alt.X2("high:Q"), y=y, y2=alt.Y2Datum(0), color=axes.colour())
    ]
    if curves is not None and curves.height:
        lines = curves.select("level", low="value", share=pl.col("density") * 100 * _width(bins))
        layers.append(alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour()))
    return alt.layer(*layers, height=_HEIGHT)


def density_chart(curves: pl.DataFrame, bins: pl.DataFrame, axes: Axes) -> Chart:
    """``curves``: ``level, value, density``, and for bell curves ``mean`` and ``sigma``, whose places are dotted.

    On the scale of the histogram of ``bins``, so that all of these charts can be held against each other.
    """
    lines = curves.select("level", "value", pl.col("density") * 100 * _width(bins))
    y = alt.Y("density:Q", title=_SHARE, scale=alt.Scale(zero=True), axis=PLAIN)
    x = axes.values("value")
    layers = [
        alt.Chart(lines).mark_area(fillOpacity=0.12).encode(x=x, y=y, color=axes.colour()),
        alt.Chart(lines).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour()),
    ]
    if "sigma" in curves.columns:
        marks = curves.group_by("level", maintain_order=True).first().select("level", "mean", "sigma")
        places = pl.concat(
            marks.select("level", value=pl.col("mean") + times * pl.col("sigma"), middle=pl.lit(times == 0))
            for times in (-1, 0, 1)
        )
        for middle, size in ((True, 1.6), (False, 1.0)):
            rules = alt.Chart(places.filter(middle=middle)).mark_rule(strokeDash=[2, 3], strokeWidth=size)
            layers.append(rules.encode(x=x, color=axes.colour()))
    return alt.layer(*layers, height=_HEIGHT)


def _width(bins: pl.DataFrame) -> float:
    return float(str((bins["high"] - bins["low"])[0]))


def box_chart(boxes: pl.DataFrame, outliers: pl.DataFrame, axes: Axes, whiskers: float) -> Chart:
    """``boxes``: ``level, low, first, median, third, high``; ``outliers``: ``level, value, aside``; a row a level.

    Outliers lie at random heights, so that none hides another.
    """
    y = axes.rows()
    colour = axes.colour(legend=False)
    x, first, median, value = (
        axes.values(each, f"whiskers of {whiskers:g} IQR") for each in ("low", "first", "median", "value")
    )
    lines = alt.Chart(boxes).mark_rule(strokeWidth=1.5).encode(x=x, x2=alt.X2("high:Q"), y=y, color=colour)
    bars, ticks = alt.Chart(boxes).mark_bar(fillOpacity=0.55, size=24), alt.Chart(boxes)
    quartiles = bars.encode(x=first, x2=alt.X2("third:Q"), y=y, color=colour)
    middle = ticks.mark_tick(thickness=2.5, color=INK, size=24, opacity=1).encode(x=median, y=y)
    aside = alt.YOffset("aside:Q", scale=alt.Scale(domain=[-0.6, 0.6]))
    circles = alt.Chart(outliers).mark_circle(size=14, fillOpacity=0.6)
    points = circles.encode(x=value, y=y, yOffset=aside, color=colour)
    return alt.layer(lines, quartiles, middle, points, height=_ROW * boxes.height + _AXIS)


def boxes_chart(boxes: pl.DataFrame, axes: Axes, column: str, title: str, names: Sequence[str]) -> Chart:
    """``boxes``: as above, with ``column``, one of ``names``: side by side from left to right, levels within."""
    x = alt.X(f"{column}:N", title=title, sort=list(names), axis=alt.Axis(grid=False, labelAngle=0, labelOverlap=True))
    offset = alt.XOffset("level:N", sort=list(axes.shown))
    hint = alt.Scale(zero=False, nice=True)
    colour = axes.colour()

    def y(of: str) -> alt.Y:
        return alt.Y(f"{of}:Q", title=axes.beside("not from zero"), scale=hint, axis=PLAIN)

    base = alt.Chart(boxes).encode(x=x, xOffset=offset)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y=y("low"), y2=alt.Y2("high:Q"), color=colour)
    quartiles = base.mark_bar(fillOpacity=0.55).encode(y=y("first"), y2=alt.Y2("third:Q"), color=colour)
    middle = base.mark_tick(thickness=2, color=INK, opacity=1, bandSize=14).encode(y=y("median"))
    return alt.layer(whiskers, quartiles, middle, height=_HEIGHT)


def factor_chart(rows: pl.DataFrame, axes: Axes, title: str) -> Chart:
    """``rows``: ``level, number`` in display units, and ``label``, which says how many times the least it is."""
    y = axes.rows()
    x = alt.X("number:Q", title=title, scale=alt.Scale(zero=True, nice=True), axis=PLAIN)
    bars = alt.Chart(rows).mark_bar(size=22, fillOpacity=0.75).encode(x=x, y=y, color=axes.colour(legend=False))
    words = alt.Chart(rows).mark_text(align="left", baseline="bottom", dy=-13, fontSize=12, color=INK)
    labels = words.encode(x=alt.XDatum(0), y=y, text=alt.Text("label:N"))
    return alt.layer(bars, labels, height=58 * rows.height + 46)


def quantiles_chart(differences: pl.DataFrame, axes: Axes) -> Chart:
    """``differences``: ``level, quantile, difference``, both as shares. Against which level, its heading says."""
    rows = differences.select("level", quantile=100 * pl.col("quantile"), difference=100 * pl.col("difference"))
    whole = alt.Scale(domain=[0, 100], nice=False)
    x = alt.X("quantile:Q", title="quantile (%)", scale=whole, axis=alt.Axis(grid=False))
    y = alt.Y("difference:Q", title="difference (%)", scale=alt.Scale(zero=True, nice=True), axis=PLAIN)
    line = alt.Chart(rows).mark_line(strokeWidth=2).encode(x=x, y=y, color=axes.colour())
    zero = alt.Chart(pl.DataFrame({"difference": [0.0]})).mark_rule(color=SOFT).encode(y=y)
    return alt.layer(zero, line, height=220)


def with_checkpoints(chart: Chart, marks: pl.DataFrame, axes: Axes, clock: Clock) -> Chart:
    """A chart over time with ``marks``, ``level, t``, as triangles along its bottom."""
    points = alt.Chart(marks).mark_point(shape="triangle-up", filled=True, size=60, opacity=1, yOffset=-5)
    return alt.layer(chart, points.encode(x=clock.axis("t"), y=alt.value("height"), color=axes.colour()))


def course_chart(
    course: pl.DataFrame,
    steps: pl.DataFrame,
    axes: Axes,
    clock: Clock,
    span: tuple[float, float] | None = None,
    *,
    log: bool = False,
) -> Chart:
    """``course``: ``level, t, mean, low, high``; ``steps``: ``level, begin, end, mean`` of levels between changes.

    The line is the mean of a step of time, the band from the least sample in it to the largest. ``span``: what the
    chart is zoomed in on, beyond which both end at its edge; else it is all of them from zero, or ``log``.
    """
    lowest, highest = span or (min(0.0, float(str(course["low"].min()))), float(str(course["high"].max())))
    room = 0.1 * (highest - lowest) or 0.04 * abs(highest) or 1.0
    domain = (lowest - room, highest + room) if span else (lowest, highest + room / 2)
    course = course.select("level", "t", pl.col("mean", "low", "high").clip(*domain))
    scale = alt.Scale(domain=list(domain), zero=not span, nice=False)
    hint, axis = "not from zero" if span else "", PLAIN
    if log:
        course = course.with_columns(pl.col("low").clip(lower_bound=float(str(course["mean"].min())) / 10))
        scale, hint, axis = alt.Scale(type="log", nice=False, padding=6), "log scale", log_axis(course["mean"])
    y = alt.Y("mean:Q", title=axes.beside(hint), scale=scale, axis=axis)
    x, colour = clock.axis("t"), axes.colour()
    base, begin = alt.Chart(course).encode(x=x, color=colour), clock.axis("begin")
    band = base.mark_area(fillOpacity=0.16).encode(y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q"))
    layers = [band, base.mark_line(strokeWidth=1.2, strokeOpacity=0.75).encode(y=y)]
    if steps.height:
        levels = alt.Chart(steps).mark_rule(strokeWidth=3)
        changes = alt.Chart(steps.filter(pl.col("begin") > 0)).mark_rule(strokeWidth=1.5, strokeDash=[4, 3], color=SOFT)
        layers.append(levels.encode(x=begin, x2=alt.X2("end:Q"), y=y, color=colour))
        layers.append(changes.encode(x=begin, color=colour))
    return alt.layer(*layers, height=_COURSE)


def series_chart(course: pl.DataFrame, median: pl.DataFrame, axes: Axes, clock: Clock, top: float) -> Chart:
    """``course``: ``level, round, t, mean`` of one level: a thin line a round. ``median``: theirs, without ``round``.

    ``top`` is the axis's end, shared by like charts.
    """
    x, colour = clock.axis("t"), axes.colour(legend=False)
    y = alt.Y("mean:Q", title=axes.beside(), scale=alt.Scale(domain=[0, top], nice=True), axis=PLAIN)
    rounds = alt.Chart(course.select("level", "round", "t", "mean")).mark_line(strokeWidth=1, strokeOpacity=0.35)
    middle = alt.Chart(median.select("level", "t", "mean")).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour)
    lines = rounds.encode(x=x, y=y, color=colour, detail=alt.Detail("round:O"))
    return alt.layer(lines, middle, height=190)


def variance_chart(course: pl.DataFrame, axes: Axes, clock: Clock, unit: str) -> Chart:
    """``course``: ``level, t, variance``, the variance within each part of a trial, in display units."""
    line = alt.Chart(course.select("level", "t", "variance"), height=200).mark_line(strokeWidth=1.6, interpolate="step")
    y = alt.Y("variance:Q", title=f"variance in a part ({unit})", scale=alt.Scale(zero=True), axis=PLAIN)
    chart: Chart = line.encode(x=clock.axis("t"), y=y, color=axes.colour())
    return chart
