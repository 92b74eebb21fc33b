"""What charts of samples share: the metric with its display unit, its levels' colours, and the axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from storlab.report import format as fmt
from storlab.report.charts.names import title_of
from storlab.report.charts.scales import PLAIN, above_rows, axis_title
from storlab.report.charts.theme import COLOURS, of
from storlab.timeseries.course import HOUR, LONG


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
        """Whether those that are shown have a colour each."""
        places = {self.levels.index(level) % len(COLOURS) for level in self.shown}
        return len(places) == len(self.shown)

    def colour(self, *, legend: bool = True) -> alt.Color:
        """A colour for each level, with a legend where there are several."""
        legend = legend and len(self.shown) > 1
        shown = alt.Legend(title=title_of(self.factor), values=list(self.shown), symbolOpacity=1) if legend else None
        return alt.Color("level:N", scale=of(list(self.levels), COLOURS), legend=shown)

    def beside(self, hint: str = "") -> str:
        """The unit alone, for the short side of a chart: its heading names the metric."""
        return ", ".join(part for part in (self.unit.symbol or self.metric, hint) if part)

    def title(self, hint: str = "") -> str:
        """ "tps (k/s, not from zero)"."""
        return axis_title(self.metric, self.unit, hint)

    def rows(self) -> alt.Y:
        """A row for each level."""
        return alt.Y("level:N", sort=list(self.shown), axis=above_rows(self.factor))

    def values(self, column: str) -> alt.X:
        """The metric along the bottom, over the range of its samples."""
        title = self.title("not from zero")
        return alt.X(f"{column}:Q", title=title, scale=alt.Scale(zero=False, nice=False), axis=PLAIN)


@dataclass(frozen=True)
class Clock:
    """The axis of time: seconds, or hours where a trial is longer than two of them."""

    duration: float

    @property
    def unit(self) -> float:
        """In s."""
        return HOUR if self.duration > LONG else 1.0

    def axis(self, column: str) -> alt.X:
        """Of ``column``, in ``unit``; all of the trial."""
        name = "h" if self.unit == HOUR else "s"
        scale = alt.Scale(domain=[0, self.duration / self.unit], nice=False)
        return alt.X(f"{column}:Q", title=f"time in the trial ({name})", scale=scale, axis=alt.Axis(grid=False))
