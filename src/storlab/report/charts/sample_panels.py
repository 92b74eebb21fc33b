"""Which charts of samples a report has: for each load, the levels of the compared factor in one chart.

Rounds are what is compared, so where there are several, distributions stand round by round. A single trial of each
level, as of results from elsewhere, has every view of its samples that people know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import altair as alt
import polars as pl

from storlab.analysis import variability as within
from storlab.metrics import percentile_name
from storlab.report.charts.panel import Combination, Panel, file_stem, panel
from storlab.report.charts.samples import (
    Axes,
    Clock,
    Sampled,
    box_chart,
    boxes_chart,
    course_chart,
    density_chart,
    factor_chart,
    histogram_chart,
    quantiles_chart,
    sampled,
    series_chart,
    variance_chart,
    with_checkpoints,
)
from storlab.report.charts.theme import Chart, seconds_axis
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.input import ReportInput
from storlab.report.model.variability import variance_unit
from storlab.timeseries.variability import HOUR, times_least

_STEPS_ALONE = 120  # of a level by itself, in a chart a third as wide
_PARTS = 60  # of the variance over time
_NEAR = 0.5  # of the largest: what goes as low as that is shown from zero anyway
_IN_A_PART = 3  # samples: of fewer a variance says nothing


@dataclass(frozen=True)
class _View:
    """One chart to be, with ``told``: what it shows, in words."""

    title: str
    told: str
    draw: Callable[[], Chart]
    aside: bool = False
    wide: bool = False


def course_panels(of: Sampled, taken: set[str]) -> Iterator[Panel]:
    """All levels over time, in the range of their samples and from zero."""
    if not of.lasts or not of.axes.told_apart:
        return
    combination = of.combination
    shown = words.listed(list(of.axes.shown))
    told = (
        f"{combination.metric} of {shown} over the time of a trial{_changes_in_words(of)}{_checkpoints_in_words(of)}."
    )
    low, high = within.bulk(of.samples)
    from_zero = low < _NEAR * high
    titles = {True: "All levels"} if from_zero else {False: "All levels, zoomed in", True: "All levels, from zero"}
    for whole, title in titles.items():
        name = file_stem("course", [combination.title, "from-zero" if whole else ""], taken)
        title += "; triangles are checkpoints" if of.checkpoints.height else ""
        draw = partial(_course_chart, of, None if whole else (low, high))
        log = partial(_course_chart, of, None, log=True) if whole and low > 0 else None
        yield panel("time", name, combination.title, title, told, draw, draw_log=log, wide=from_zero or not whole)


def series_panels(of: Sampled, taken: set[str]) -> Iterator[Panel]:
    """Each level by itself over time, its rounds one by one; all of them on one scale."""
    if not of.lasts:
        return
    step = max(of.clock.duration / _STEPS_ALONE, within.interval(of.samples))
    course = within.over_time(of.samples, step).with_columns(pl.col("t") / of.clock.unit)
    top = float(str(course["mean"].max()))
    title, metric, unit = of.combination.title, of.combination.metric, of.axes.unit
    for level in of.axes.shown:
        own = course.filter(level=level)
        highest = float(str(own["mean"].max()))
        rounds = fmt.plural(own["round"].n_unique(), "round")
        most = unit.attach(fmt.number(highest, fmt.decimals(highest)))
        told = f"{metric} of {level} over the time of a trial, {rounds}, up to {most}."
        draw = partial(series_chart, own, within.over_rounds(own), of.axes, of.clock, top)
        name = file_stem("series", [f"{title}-{level}"], taken)
        heading = words.named(of.axes.factor, level)
        yield panel("time", name, title, heading, told, draw)


def variability_panels(of: Sampled, taken: set[str]) -> Iterator[Panel]:
    """Distributions of samples, their variance, and one level against another."""
    if not of.comparable:
        return
    combination = of.combination
    for view in _views(of):
        name = file_stem("variability", [combination.title, view.title], taken)
        told = f"{combination.metric}: {view.told}"
        place = "variability-details" if view.aside else "variability"
        yield panel(place, name, combination.title, view.title, told, view.draw, wide=view.wide)


def _views(of: Sampled) -> Iterator[_View]:
    bins = within.histogram(of.many)
    if of.axes.told_apart:
        yield from _of_few_levels(of, bins)
    if of.alone:
        yield from _of_single_trials(of, bins)


def _of_few_levels(of: Sampled, bins: pl.DataFrame) -> Iterator[_View]:
    yield _part_by_part(of) if of.alone else _round_by_round(of)
    shown = words.listed(of.comparable)
    count = int(bins.group_by("level").first()["outside"].sum())
    far = f", but for {fmt.plural(count, 'sample')} far away" if count else ""
    told = f"histogram and density of the samples of {shown}."
    yield _View(f"Histogram with density{far}", told, lambda: histogram_chart(bins, of.axes, of.densities))
    base, *others = of.comparable
    if others:
        one = f" of {others[0]}" if len(others) == 1 else ""
        yield _View(
            f"Quantiles{one} against {base}",
            f"the difference of each quantile of {words.listed(others)} from that of {base}.",
            lambda: quantiles_chart(within.quantile_differences(of.many, base), replace(of.axes, shown=others)),
        )


def _of_single_trials(of: Sampled, bins: pl.DataFrame) -> Iterator[_View]:
    boxes, outliers = within.boxes(of.many, of.whiskers, "level"), within.outlying(of.many, of.whiskers)
    box = partial(box_chart, boxes, axes=of.axes, whiskers=of.whiskers)
    yield _View("Box with outliers", _outliers_in_words(of, outliers), lambda: box(outliers))
    yield from _outlier_counts(of, outliers)
    yield from _variances(of)
    if not of.axes.told_apart:
        return
    shown = words.listed(of.comparable)
    normal = f"normal distributions with the mean and σ of {shown}"
    dotted, binned = f"{normal}, dotted at the mean and one σ to both sides", f"{shown} in shared bins"
    alone: tuple[tuple[str, str, Callable[[], Chart]], ...] = (
        ("Histogram", binned, lambda: histogram_chart(bins, of.axes)),
        ("Density", f"density of {shown}", lambda: density_chart(of.densities, bins, of.axes)),
        ("Bell curves", dotted, lambda: density_chart(of.bells, bins, of.axes)),
        ("Histogram with bell curves", f"{binned}, with {normal}", lambda: histogram_chart(bins, of.axes, of.bells)),
        ("Box", f"quartiles and whiskers of {shown}", lambda: box(outliers.clear())),
    )
    for title, told, draw in alone:
        yield _View(title, f"{told}.", draw, aside=True)


def _outliers_in_words(of: Sampled, outliers: pl.DataFrame) -> str:
    counts = _counts(of, outliers)
    told = [f"{level} has {fmt.plural(count, 'outlier')}" for level, count in counts.items()]
    return f"quartiles and whiskers of {of.whiskers:g} interquartile ranges; {words.listed(told)}."


def _counts(of: Sampled, outliers: pl.DataFrame) -> dict[str, int]:
    found = dict(outliers.group_by("level").agg(pl.col("of").first()).iter_rows())
    return {level: int(found.get(level, 0)) for level in of.comparable}


def _outlier_counts(of: Sampled, outliers: pl.DataFrame) -> Iterator[_View]:
    counts = _counts(of, outliers)
    if not any(counts.values()):
        return
    labels = [
        _with_factor(str(n), times) for n, times in zip(counts.values(), times_least([*counts.values()]), strict=True)
    ]
    bars = pl.DataFrame({"level": [*counts], "number": [*counts.values()], "label": labels})
    title = f"samples beyond {of.whiskers:g} IQR from the quartiles"
    told = words.listed([f"{level} {label}" for level, label in zip(counts, labels, strict=True)])
    yield _View("Outliers", f"{title}: {told}.", lambda: factor_chart(bars, of.axes, title))


def _with_factor(number: str, factor: float | None) -> str:
    """ "48 · 9.60×": how many times the least it is, where it is not that itself."""
    return f"{number} · {fmt.ratio(factor)}" if factor and factor > 1 else number


def _variances(of: Sampled) -> Iterator[_View]:
    unit, base = variance_unit(of.combination.unit), of.axes.unit.factor**2
    found = within.variances(of.many).with_columns(pl.col("variance") * base)
    shown = fmt.scale(float(str(found["variance"].max())), unit)
    labels = [
        _with_factor(fmt.quantity(variance, unit, within=shown), factor)
        for variance, factor in found.select("variance", "factor").iter_rows()
    ]
    bars = found.with_columns(number=pl.col("variance") / shown.factor, label=pl.Series(labels, dtype=pl.String))
    told = [f"{level} {label}" for level, label in bars.select("level", "label").iter_rows()]
    title = f"variance ({shown.symbol})"
    yield _View("Variance", f"variance of {words.listed(told)}.", lambda: factor_chart(bars, of.axes, title))
    step = within.step_of(of.many, _PARTS)
    parts = within.over_time(of.many, step).filter(pl.col("count") >= _IN_A_PART)
    if parts.height > len(of.comparable) and of.axes.told_apart:
        scaled = parts.with_columns(pl.col("variance") * base / shown.factor, t=pl.col("t") / of.clock.unit)
        yield _View(
            "Variance over time",
            f"variance within parts of {fmt.duration(step)}, of {words.listed(of.comparable)}.",
            lambda: variance_chart(scaled, of.axes, of.clock, shown.symbol),
        )


def _round_by_round(of: Sampled) -> _View:
    boxes = within.boxes(of.many, of.whiskers, "level", "round").with_columns(pl.col("round").cast(pl.String))
    names = [str(number) for number in of.rounds]
    told = f"quartiles and whiskers of {fmt.plural(len(names), 'round')}."
    return _View("Round by round", told, lambda: boxes_chart(boxes, of.axes, "round", "round", names), wide=True)


def _part_by_part(of: Sampled) -> _View:
    parted, step = within.parts(of.many)
    unit = of.clock.unit
    count = int(str(parted["part"].max())) + 1
    names = [f"{(part + 1) * step / unit:g}" for part in range(count)]
    boxes = within.boxes(parted, of.whiskers, "level", "part").with_columns(
        pl.col("part").replace_strict(dict(enumerate(names)), return_dtype=pl.String)
    )
    title = f"time in the trial, each until ({'h' if unit == HOUR else 's'})"
    name = "Hour by hour" if step == HOUR else f"Part by part, {fmt.duration(step)} each"
    told = f"quartiles and whiskers in parts of {fmt.duration(step)}."
    return _View(name, told, lambda: boxes_chart(boxes, of.axes, "part", title, names), wide=True)


def _course_chart(of: Sampled, span: tuple[float, float] | None, *, log: bool = False) -> Chart:
    chart = course_chart(of.course, of.levels_in_time, of.axes, of.clock, span, log=log)
    return with_checkpoints(chart, of.checkpoints, of.axes, of.clock) if of.checkpoints.height else chart


def _checkpoints_in_words(of: Sampled) -> str:
    """ "; 2 checkpoints of postgresql" """
    counts = of.checkpoints.group_by("level", maintain_order=True).len()
    told = [f"{fmt.plural(count, 'checkpoint')} of {level}" for level, count in counts.iter_rows()]
    return f"; {words.listed(told)}" if told else ""


def _changes_in_words(of: Sampled) -> str:
    """ "; the level of on changes at 8 h 33 min, 9 h 28 min"."""
    names = {cell: level for level, cell in of.combination.cells.items()}
    told = [
        f"the level of {names[each['cell']]} changes at {', '.join(fmt.duration(c['t']) for c in each['changes'])}"
        for each in of.findings.iter_rows(named=True)
        if each["changes"] and of.alone
    ]
    return f"; {'; '.join(told)}" if told else ""


_DRAWN = (99.0, 50.0)
_DASHES: dict[str, list[int]] = {"p99": [1, 0], "p50": [4, 3]}
_TOLD = {"p99": "p99", "p50": "p50 (dashed)"}
_NO_LINES = pl.DataFrame(
    schema={"level": pl.String, "percentile": pl.String, **dict.fromkeys(("t", "mean", "low", "high"), pl.Float64)}
)


def percentile_panels(
    given: ReportInput, combination: Combination, levels: Sequence[str], taken: set[str]
) -> Iterator[Panel]:
    """``combination.metric`` over time, such as ``read.latency``; nothing where its percentiles have no course."""
    specs = given.declared[combination.source]
    series = ((p, specs.statistic(combination.metric, "percentile", p)) for p in _DRAWN)
    found = [
        (percentile_name(p), sampled(given, replace(combination, metric=m), levels, "none")) for p, m in series if m
    ]
    courses = [(name, of) for name, of in found if of is not None and of.lasts]
    lines = pl.concat([_NO_LINES, *(_in_seconds(name, of) for name, of in courses)])
    if lines.is_empty():
        return
    longest = max((of for _, of in courses), key=lambda of: of.clock.duration)
    title = f"Percentiles of each interval: {' and '.join(_TOLD[name] for name, _ in courses)}"
    shown = words.listed(list(longest.axes.shown))
    names = words.listed([name for name, _ in courses])
    told = f"{names} of {combination.metric} over the time of a trial, of {shown}."
    draw = partial(percentiles_chart, lines, longest.axes, longest.clock)
    stem = file_stem("course", [combination.title, "percentiles"], taken)
    yield panel("time", stem, combination.title, title, told, draw, wide=True)


def _in_seconds(name: str, of: Sampled) -> pl.DataFrame:
    """Its course, but for what a log axis can't show."""
    values = pl.col("mean", "low", "high") * of.axes.unit.factor
    return of.course.select("level", pl.lit(name).alias("percentile"), "t", values).filter(pl.col("low") > 0)


def percentiles_chart(course: pl.DataFrame, axes: Axes, clock: Clock) -> Chart:
    """``course``: ``level, percentile, t, mean, low, high``, latencies in s; bands as in charts of throughput."""
    scale = alt.Scale(type="log", nice=False)
    axis = seconds_axis([*course["low"], *course["high"]])
    x, colour = clock.axis("t"), axes.colour()
    dash = alt.StrokeDash("percentile:N", legend=None, scale=alt.Scale(domain=[*_DASHES], range=[*_DASHES.values()]))
    base = alt.Chart(course).encode(x=x, color=colour)
    lowest, detail = alt.Y("low:Q", scale=scale), alt.Detail("percentile:N")
    band = base.mark_area(fillOpacity=0.16).encode(y=lowest, y2=alt.Y2("high:Q"), detail=detail)
    y = alt.Y("mean:Q", title="latency (log scale)", scale=scale, axis=axis)
    return alt.layer(band, base.mark_line(strokeWidth=1.4).encode(y=y, strokeDash=dash), height=240)
