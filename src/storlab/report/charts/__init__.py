"""Charts of a report: pure functions from frames to Altair, and which of them a report is made of.

Altair and what draws its charts are large, and an extra: they are imported by whoever calls ``charts_of``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storlab.base.programs import has_extra

if TYPE_CHECKING:
    from storlab.report.document import Block
    from storlab.report.model.input import ReportInput


def charts_of(given: ReportInput, *, full: bool = False) -> dict[str, tuple[Block, ...]]:
    """All that there are, by the place of a report where they belong; none if the extra ``charts`` is not installed."""
    if not has_extra("charts"):
        return {}
    from storlab.report.charts.all import all_panels
    from storlab.report.charts.panel import arranged

    return arranged(all_panels(given, full=full))
