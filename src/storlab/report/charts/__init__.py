"""Charts of a report: pure functions from frames to Altair, and the panels that a report is made of."""

from storlab.report.charts.all import all_panels
from storlab.report.charts.panel import Kind, Panel

__all__ = ["Kind", "Panel", "all_panels"]
