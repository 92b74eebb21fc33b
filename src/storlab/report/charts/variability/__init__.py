"""How much the samples within trials vary: over time, as distributions, and of one level against another."""

from storlab.report.charts.variability.panels import course_panels, variability_panels

__all__ = ["course_panels", "variability_panels"]
