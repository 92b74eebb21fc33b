"""Charts of a report: pure functions from frames to Altair, and the panels that a report is made of.

Altair and what draws its charts are large, and an extra: they are imported by whoever calls ``all_panels``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storlab.extras import has_extra

if TYPE_CHECKING:
    from storlab.report.charts.panel import Panel
    from storlab.report.model.input import ReportInput

__all__ = ["all_panels"]


def all_panels(given: ReportInput, *, full: bool = False) -> list[Panel]:
    """Every chart that there is to draw, see ``all``; none where the extra ``charts`` is not installed."""
    if not has_extra("charts"):
        return []
    from storlab.report.charts.all import all_panels as drawable

    return drawable(given, full=full)
