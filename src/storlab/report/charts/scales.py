"""Axes for numbers with units: in one display unit, from zero or clearly not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import altair as alt
import polars as pl

from storlab.report.charts.names import title_of
from storlab.report.language import format as fmt

_ZOOM = 2.0  # values that lie closer than this factor are shown without the zero
FAR = 40.0  # and those that lie farther apart on a log scale

# Axis labels of seconds on a log scale, in the unit of each; constants only, no text from outside.
SECONDS = (
    "datum.value < 0.999e-6 ? format(datum.value * 1e9, '~r') + ' ns'"
    " : datum.value < 0.999e-3 ? format(datum.value * 1e6, '~r') + ' µs'"
    " : datum.value < 0.999 ? format(datum.value * 1e3, '~r') + ' ms'"
    " : format(datum.value, '~r') + ' s'"
)


# "1000" as in the tables, not "1,000"; long level names leave the axis little room on a phone.
PLAIN = alt.Axis(format="~r", tickCount=4)


def seconds_axis(values: Iterable[float]) -> alt.Axis:
    """Of a log scale, with each of ``decades`` in a unit of its own."""
    marks = decades(values)
    return alt.Axis(values=marks, tickCount=len(marks), labelExpr=SECONDS)


def above_rows(factor: str) -> alt.Axis:
    """The axis of rows that are levels of ``factor``, whose name stands above theirs."""
    return alt.Axis(
        title=title_of(factor),
        titleAlign="right",
        titleAngle=0,
        titleBaseline="bottom",
        titleX=-6,
        titleY=-6,
        grid=False,
    )


def decades(values: Iterable[float]) -> list[float]:
    """Ticks of a log axis: powers of ten, or 1, 2 and 5 of each where that gives few."""
    sizes = [value for value in values if value > 0]
    if not sizes:
        return []
    low, high = min(sizes), max(sizes)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    coarse = [10.0**power for power in powers]
    inside = [tick for tick in coarse if low / 1.5 <= tick <= high * 1.5]
    return inside if len(inside) >= 3 else [tick for tick in fine if low / 1.5 <= tick <= high * 1.5]


def log_axis(values: Iterable[float]) -> alt.Axis:
    """With a line for each of ``decades``; Vega's own has nine for each power of ten."""
    marks = decades(values)
    return alt.Axis(values=marks, tickCount=len(marks), format="~r")


def display_unit(values: Iterable[float], unit: str) -> fmt.Scale:
    """One unit for an axis: that of the largest value."""
    return fmt.scale(max((abs(value) for value in values), default=0.0), unit)


def finite(frame: pl.DataFrame, column: str = "value") -> pl.DataFrame:
    """The rows that an axis can show."""
    return frame.filter(pl.col(column).is_finite())


def axis_title(metric: str, unit: fmt.Scale, extra: str = "") -> str:
    """ "write.bandwidth (MiB/s, log scale)"."""
    inside = ", ".join(part for part in (unit.symbol, extra) if part)
    return f"{metric} ({inside})" if inside else metric


def fitting_scale(values: Iterable[float], *, log: bool | None = None) -> tuple[alt.Scale, str]:
    """A scale for ``values`` and what its title must say: if it isn't zero-based, the reader is told.

    ``log``: whether it has to be logarithmic, if that can show them; ``None``: if they lie far apart.
    """
    values = list(values)
    sizes = [value for value in values if value > 0]
    if any(value <= 0 for value in values):  # which no log axis can show
        return alt.Scale(zero=True, nice=True), ""
    if not sizes or log or (log is None and max(sizes) / min(sizes) > FAR):
        return (alt.Scale(type="log", nice=False, padding=8), "log scale") if sizes else (alt.Scale(zero=True), "")
    if max(sizes) / min(sizes) < _ZOOM:
        return alt.Scale(zero=False, nice=True), "not from zero"
    return alt.Scale(zero=True, nice=True), ""
