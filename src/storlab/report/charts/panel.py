"""One chart of a report with the words that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storlab.report.charts.theme import Chart

Kind = Literal["rounds", "paired", "series", "latency"]


@dataclass(frozen=True)
class Panel:
    """``name`` is a file's stem, unique in a report. ``alt`` says in words what the chart shows."""

    kind: Kind
    name: str
    title: str
    alt: str
    chart: Chart
