"""How much the samples within trials vary: over time, as distributions, and of one level against another."""

from storlab.report.charts.variability.panels import course_panels, percentile_panels, series_panels, variability_panels
from storlab.report.charts.variability.sampled import Sampled, sampled

__all__ = ["Sampled", "course_panels", "percentile_panels", "sampled", "series_panels", "variability_panels"]
