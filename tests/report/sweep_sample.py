"""A sweep of two factors, as a report has it."""

from __future__ import annotations

from analysis.sweeps.test_found import sweep
from storlab.report.model.input import ReportInput


def sweep_sample(jobs: tuple[str, ...] = ("1", "2", "4")) -> ReportInput:
    return ReportInput(sweep(jobs=jobs, rounds=10))
