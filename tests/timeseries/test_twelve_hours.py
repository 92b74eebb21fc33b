"""Two runs of twelve hours: each by itself changes its level, though SNIA's rule calls it steady."""

from __future__ import annotations

import pytest

from storlab.timeseries.findings import SeriesFindings, findings
from storlab.timeseries.variability import variance_factors
from storlab.timeseries.wording import Examined, warnings

from .twelve_hours import SOURCES, samples

pytestmark = pytest.mark.parametrize("source", SOURCES)

SAID = {
    "alike": [
        "off, tps: it falls by 1.1 % from start to end, in steps rather than gradually, "
        "so its mean depends on how long it ran",
        "off, tps: the level falls by 1.1 % at 4 h 54 min",
        "on, tps: the level changes 2 times, the most by 2.7 % up at 9 h 30 min, "
        "and it ends 1.3 % higher than it began",
    ],
    "published": [
        "off, tps: it falls by 1.2 % from start to end, in steps rather than gradually, "
        "so its mean depends on how long it ran",
        "off, tps: the level falls by 1.2 % at 4 h 54 min",
        "on, tps: the level changes 2 times, the most by 2.7 % up at 9 h 28 min, "
        "and it ends 1.3 % higher than it began",
    ],
}


def found_in(source: str, setting: str) -> SeriesFindings:
    found = findings(*samples(source, setting))
    assert found is not None
    return found


def test_both_are_steady_by_snia_and_worth_a_few_samples_of_their_21600(source: str) -> None:
    for setting in ("off", "on"):
        found = found_in(source, setting)
        assert found.steady_snia == 300.0
        assert found.effective < 25
        assert 0.008 < (found.cv or 0) < 0.011


def test_their_changes_of_the_level_are_named(source: str) -> None:
    off, on = found_in(source, "off"), found_in(source, "on")
    assert [round(change.t / 3600, 1) for change in off.changes] == [4.9]
    assert [round(change.t / 3600, 1) for change in on.changes] == [8.5, 9.5]
    assert warnings([Examined("off, tps", off, 1), Examined("on, tps", on, 1)]) == SAID[source]


def test_off_drifts_and_of_on_that_cant_be_told(source: str) -> None:
    off, on = found_in(source, "off"), found_in(source, "on")
    assert off.drift_high is not None and off.drift_high < 0
    assert on.drift_low is not None and on.drift_high is not None and on.drift_low < 0 < on.drift_high


def test_the_variance_factor_is_the_larger_by_the_smaller(source: str) -> None:
    off, on = (samples(source, setting)[1] for setting in ("off", "on"))
    one, factor = variance_factors([float(off.var()), float(on.var())])
    assert one == 1.0
    assert factor == pytest.approx({"alike": on.var() / off.var(), "published": 2854.07 / 2164.12}[source], rel=1e-4)
