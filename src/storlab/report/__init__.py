"""Reports: what a run found, for people (terminal, Markdown, HTML, AsciiDoc) and for programs (CSV, JSON)."""

from storlab.report.formats import FORMATS, render
from storlab.report.input import ReportInput

__all__ = ["FORMATS", "ReportInput", "render"]
