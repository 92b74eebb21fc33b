"""Two public runs of twelve hours: each by itself changes its level, though SNIA's rule calls it steady."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from storlab.timeseries.findings import SeriesFindings, findings
from storlab.timeseries.variability import variance_factor
from storlab.timeseries.wording import Examined, warnings

from .noise import Floats

REFERENCE = os.environ.get("STORLAB_REFERENCE", "")
_LINE = re.compile(rb"^\[ (\d+)s \] thds: \d+ tps: ([\d.]+) ", re.MULTILINE)

pytestmark = pytest.mark.skipif(not REFERENCE, reason="STORLAB_REFERENCE names no folder with these files")


def samples(setting: str) -> tuple[Floats, Floats]:
    text = (Path(REFERENCE) / "sysbench" / f"mysql-12h-doublewrite-{setting}.txt").read_bytes()
    rows = np.array(_LINE.findall(text), dtype=np.float64)
    assert len(rows) == 21_600
    return rows[:, 0], rows[:, 1]


def found_in(setting: str) -> SeriesFindings:
    found = findings(*samples(setting))
    assert found is not None
    return found


def test_both_are_steady_by_snia_and_worth_a_few_samples_of_their_21600() -> None:
    for setting in ("off", "on"):
        found = found_in(setting)
        assert found.steady_snia == 300.0
        assert found.effective < 25
        assert 0.008 < (found.cv or 0) < 0.011


def test_their_changes_of_the_level_are_named() -> None:
    off, on = found_in("off"), found_in("on")
    assert [round(change.t / 3600, 1) for change in off.changes] == [4.9]
    assert [round(change.t / 3600, 1) for change in on.changes] == [8.5, 9.5]
    said = warnings([Examined("off, tps", off, 1), Examined("on, tps", on, 1)])
    assert said == [
        "off, tps: it falls by 1.2 % from start to end, in steps rather than gradually, "
        "so its mean depends on how long it ran",
        "off, tps: the level changes by 1.2 % down at 4 h 54 min",
        "on, tps: the level changes 2 times, the most by 2.7 % up at 9 h 28 min, "
        "and it ends 1.3 % higher than it began",
    ]


def test_off_drifts_and_of_on_that_cant_be_told() -> None:
    off, on = found_in("off"), found_in("on")
    assert off.drift_high is not None and off.drift_high < 0
    assert on.drift_low is not None and on.drift_high is not None and on.drift_low < 0 < on.drift_high


def test_the_variance_factor_is_the_larger_by_the_smaller() -> None:
    assert variance_factor(samples("off")[1], samples("on")[1]) == pytest.approx(2854.07 / 2164.12, rel=1e-4)
