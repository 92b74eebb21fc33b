"""A made-up run that looks like a real one: what every test of the report renders.

Three file systems and one that this machine lacks, two loads, eight rounds on two nodes; one trial failed, and the
machine slowed down over the run. All of it comes from one seed, so golden files stay as they are.
"""

from __future__ import annotations

import random

from storlab.report.model.input import ReportInput

from .declared import declared
from .sample_manifest import facts, manifest
from .sample_run import CELLS
from .sample_summary import summary
from .sample_tables import tables


def sample(seed: int = 7) -> ReportInput:
    """The made-up run; the same for the same ``seed``."""
    rng = random.Random(seed)
    trials, metrics, series, histograms = tables(rng)
    return ReportInput(
        summary=summary(metrics),
        trials=trials,
        metrics=metrics,
        series=series,
        histograms=histograms,
        declared=declared(*{cell.load for cell in CELLS}),
        manifest=manifest(seed),
        facts=facts(),
    )
