"""One chart of a report with the words that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from storlab.report.charts.theme import WIDE, WIDTH, Chart, to_svg

Kind = Literal["rounds", "paired", "series", "latency", "block", "effects", "course", "variability"]


@dataclass(frozen=True)
class Panel:
    """``name`` is a file's stem, unique in a report. ``alt`` says in words what the chart shows.

    ``draw`` makes the chart: a report may show fewer than there are. What it is drawn as is kept, for page and files.
    ``aside``: not what the study is about. ``wide``: needs the whole width of a page, where there is so much.
    """

    kind: Kind
    name: str
    group: str  # of charts that belong together; may be empty
    title: str
    alt: str
    draw: Callable[[], Chart]
    aside: bool = False
    wide: bool = False

    @property
    def width(self) -> int:
        """In px, where there is room."""
        return WIDE if self.wide else WIDTH

    @property
    def full_title(self) -> str:
        """The title of the chart when it stands alone."""
        return f"{self.title}, {self.group}" if self.group else self.title

    @cached_property
    def chart(self) -> Chart:
        """The chart, made when it is first shown."""
        return self.draw()

    @cached_property
    def svg(self) -> str:
        """The chart as wide as it wants to be."""
        return to_svg(self.chart, width=self.width)

    @cached_property
    def slim_svg(self) -> str:
        """The chart for a page that is as narrow as a phone's."""
        return to_svg(self.chart, width=WIDTH) if self.wide else self.svg
