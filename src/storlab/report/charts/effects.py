"""Main effects and interactions: geometric means of levels, joined by lines.

In an interaction plot (Montgomery, "Design and Analysis of Experiments", section 5.1) lines of two factors that do not
interact are parallel, on the log axis that belongs to logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from storlab.analysis.data import Effects, LevelMean
from storlab.report.charts.theme import COLOURS, PLAIN, SHAPES, Chart, axis_title, display_unit, log_axis, of, title_of

_ROW, _AXIS = 24, 46  # px a level, and for the axis below
_NEAR = 3.0


def main_effects_chart(found: Effects) -> Chart:
    """The mean of every level of every factor, factors one below the other."""
    unit = display_unit([mean.mean for mean in found.main], found.unit)
    rows = [
        (factor, f"{factor} = {level}", place, mean.mean / unit.factor)
        for place, mean in enumerate(found.main)
        for factor, level in mean.levels.items()
    ]
    frame = pl.DataFrame(rows, schema=["factor", "level", "place", "mean"], orient="row")
    scale, hint, axis = _scale([row[3] for row in rows])
    x = alt.X("mean:Q", title=axis_title(found.metric, unit, hint), scale=scale, axis=axis)
    y = alt.Y("level:N", title=None, sort=[row[1] for row in rows], axis=alt.Axis(grid=False))
    base = alt.Chart(frame).encode(
        x=x, y=y, color=alt.Color("factor:N", legend=None, scale=of(list(found.factors), COLOURS))
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(order="place:Q"), base.mark_point(filled=True, size=60, opacity=1)
    ).properties(height=_ROW * len(rows) + _AXIS)


def _scale(values: Sequence[float]) -> tuple[alt.Scale, str, alt.Axis]:
    """Log, or where that would have no ticks linear, which so near is hardly another; with the words for its title."""
    if max(values) / min(values) < _NEAR:
        return alt.Scale(zero=False, nice=True), "not from zero", PLAIN
    return alt.Scale(type="log", nice=False, zero=False, padding=12), "log scale", log_axis(values)


def interaction_chart(found: Effects, means: Sequence[LevelMean], across: str, by: str) -> Chart:
    """Means over the levels of ``across``, a line for each level of ``by``."""
    unit = display_unit([mean.mean for mean in means], found.unit)
    rows = [(mean.levels[across], mean.levels[by], mean.mean / unit.factor) for mean in means]
    frame = pl.DataFrame(rows, schema=["across", "by", "mean"], orient="row")
    levels = list(dict.fromkeys(row[1] for row in rows))
    order = list(dict.fromkeys(row[0] for row in rows))
    x = alt.X("across:N", title=across, sort=order, axis=alt.Axis(labelAngle=0, grid=False))
    scale, hint, axis = _scale([row[2] for row in rows])
    y = alt.Y("mean:Q", title=axis_title(found.metric, unit, hint), scale=scale, axis=axis)
    base = alt.Chart(frame).encode(x=x, y=y, color=alt.Color("by:N", scale=of(levels, COLOURS), title=title_of(by)))
    lines = base.mark_line(strokeWidth=2)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=alt.Shape("by:N", scale=of(levels, SHAPES), title=title_of(by))
    )
    return alt.layer(lines, points).properties(height=230)
