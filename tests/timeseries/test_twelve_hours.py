"""Two runs of MySQL over twelve hours, doublewrite off and on: those that are published, and their like.

The published ones belong to others and are not part of this project: they are read where ``STORLAB_REFERENCE`` names
the folder that holds them. Their like is made here of what matters in them: the hours at which their level changes and
what it is between, the noise from sample to sample, and the slow one that lingers for some ten minutes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from storlab.timeseries.findings import findings
from storlab.timeseries.variability import times_least
from storlab.timeseries.wording import Examined, warnings

from .noise import Floats, ar1

REFERENCE = os.environ.get("STORLAB_REFERENCE", "")
SOURCES = ["alike", *(["published"] if REFERENCE else [])]

COUNT, INTERVAL = 21_600, 2.0  # samples; s
LEVELS = {"off": ((4.9, 5337.0), (12.0, 5272.0)), "on": ((8.5, 5365.0), (9.5, 5301.0), (12.0, 5435.0))}
"""Until which hour, in transactions/s."""
QUICK, SLOW = 27.0, 16.0  # standard deviations, transactions/s
LINGERS = 300  # samples
SEEDS = {"off": 6, "on": 104}  # of those in which the slow noise hides none of the steps, as with some it does

_LINE = re.compile(rb"^\[ (\d+)s \] thds: \d+ tps: ([\d.]+) ", re.MULTILINE)


def samples(source: str, setting: str) -> tuple[Floats, Floats]:
    """Times in seconds and transactions/s, 21,600 of each."""
    t, tps = _alike(setting) if source == "alike" else _published(setting)
    assert len(t) == len(tps) == COUNT
    return t, tps


def _alike(setting: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(SEEDS[setting])
    t = INTERVAL * np.arange(1.0, COUNT + 1)
    ends, levels = zip(*LEVELS[setting], strict=True)
    level = np.array(levels)[np.searchsorted(3600 * np.array(ends), t)]
    return t, level + QUICK * rng.standard_normal(COUNT) + SLOW * ar1(rng, COUNT, float(np.exp(-1 / LINGERS)))


def _published(setting: str) -> tuple[Floats, Floats]:
    text = (Path(REFERENCE) / "sysbench" / f"mysql-12h-doublewrite-{setting}.txt").read_bytes()
    rows = np.array(_LINE.findall(text), dtype=np.float64)
    return rows[:, 0], rows[:, 1]


pytestmark = pytest.mark.parametrize("source", SOURCES)

FACTORS = {"alike": None, "published": 2854.07 / 2164.12}


def said(source: str) -> list[str]:
    percent, at = {"alike": ("1.1", "9 h 30 min"), "published": ("1.2", "9 h 28 min")}[source]
    return [
        f"off, tps: it falls by {percent} % from start to end, in steps rather than gradually, "
        "so its mean depends on how long it ran",
        f"off, tps: the level falls by {percent} % at 4 h 54 min",
        f"on, tps: the level changes 2 times, the most by 2.7 % up at {at}, and it ends 1.3 % higher than it began",
    ]


def test_both_are_steady_by_snia_though_their_changes_and_drift_are_named(source: str) -> None:
    off, on = (findings(*samples(source, setting)) for setting in ("off", "on"))
    assert off is not None and on is not None
    for found in (off, on):
        assert found.steady_snia == 300.0 and found.effective < 25 and 0.008 < (found.cv or 0) < 0.011
    assert [round(change.t / 3600, 1) for change in off.changes] == [4.9]
    assert [round(change.t / 3600, 1) for change in on.changes] == [8.5, 9.5]
    assert warnings([Examined("off, tps", off, 1), Examined("on, tps", on, 1)]) == said(source)
    assert off.drift_high is not None and off.drift_high < 0
    assert on.drift_low is not None and on.drift_high is not None and on.drift_low < 0 < on.drift_high
    a, b = (float(samples(source, setting)[1].var()) for setting in ("off", "on"))
    assert times_least([a, b]) == [1.0, pytest.approx(FACTORS[source] or b / a, rel=1e-4)]
