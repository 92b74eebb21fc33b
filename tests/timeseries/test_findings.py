"""What is found in a series, and what is worth a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.timeseries.findings import FEWEST, SeriesFindings, findings
from storlab.timeseries.wording import Examined, time_words, warnings

from .noise import Floats, ar1, regimes


def of(values: Floats, interval: float = 1.0) -> SeriesFindings:
    found = findings(np.arange(1.0, len(values) + 1) * interval, values)
    assert found is not None
    return found


def noise(n: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(n)


STEADY = 100 + noise(300)
WARMING = STEADY - np.concatenate([np.linspace(60, 20, 40), np.zeros(260)])
FALLING = STEADY - np.linspace(0, 20, 300)
CHANGING = STEADY - np.repeat([0.0, 10.0], 150)


def test_a_steady_series_is_described_and_has_no_warning() -> None:
    found = of(STEADY, 0.1)
    assert found.interval == pytest.approx(0.1)
    assert found.duration == pytest.approx(30.0)
    assert found.steady_snia == pytest.approx(6.0)
    assert found.changes == () and found.drift_share == 0.0 and found.effective > 150
    assert warnings([Examined("load, iops", found, 1)]) == []


def test_warm_up_drift_and_changes_are_each_said_in_one_sentence() -> None:
    assert warnings([Examined("load, iops", of(WARMING), 1)]) == [
        "load, iops: the first 45 s look like warm-up (MSER-5), without which the mean is 5.6 % higher"
    ]
    assert warnings([Examined("load, iops", of(FALLING), 1)]) == [
        "load, iops: it falls by 22 % over the trial (Mann-Kendall), so its mean depends on how long it ran"
    ]
    assert warnings([Examined("load, iops", of(CHANGING, 0.1), 1)]) == ["load, iops: the level falls by 11 % at 15 s"]


def test_a_finding_of_many_trials_is_said_once_and_of_a_few_levels_one_by_one() -> None:
    many = [Examined("load, iops", of(WARMING if trial != 3 else STEADY), trial) for trial in range(1, 31)]
    (said,) = warnings(many)
    assert said.startswith("load, iops in 29 of 30 trials: the first 45 s look like warm-up (MSER-5)")
    changing = [Examined("tps", of(CHANGING if trial in (2, 5) else STEADY), trial) for trial in range(1, 7)]
    assert warnings(changing) == [
        "tps in trials 2 and 5 of 6: the level falls by 11 % at 2 min 31 s, and falls by 11 % at 2 min 31 s"
    ]
    changing = [Examined("tps", of(CHANGING), trial) for trial in range(1, 7)]
    assert warnings(changing) == ["tps in all 6 trials: the level changes within the trial, once"]
    named = [Examined("tps", of(CHANGING if trial == 2 else STEADY), trial, "ext4") for trial in range(1, 7)]
    assert warnings(named)[0].startswith("tps in trial 2 (ext4) of 6: the level falls")
    falling = [Examined("tps", of(FALLING), trial) for trial in (1, 2)]
    assert warnings(falling)[0].startswith("tps in both trials: it falls by up to 22 % over the trial")
    told = warnings([Examined("tps", of(CHANGING), 1, "off"), Examined("tps", of(CHANGING), 2, "on")])
    assert told == [f"tps ({level}): the level falls by 11 % at 2 min 31 s" for level in ("off", "on")]
    group = [Examined("iops", of(CHANGING if at == 3 else STEADY), 90 + at) for at in range(5)]
    (said,) = warnings(group)
    assert said.startswith("iops in 1 of 5 trials (93): the level falls")


def test_a_change_too_small_is_not_said_a_step_is_no_drift_and_a_slope_no_staircase() -> None:
    assert of(1000 + noise(3000) + np.repeat([0.0, 5.0], 1500)).changes == ()
    assert of(1000 + noise(3000) + np.linspace(0, 5, 3000)).drift_share == 0.0
    assert of(CHANGING).drift_share == 0.0
    assert of(FALLING).changes == ()
    values = STEADY - np.concatenate([np.full(100, 40.0), np.zeros(200)])
    assert of(values).changes
    (said,) = warnings([Examined("iops", of(values), 1)])
    assert "warm-up" in said


def test_several_changes_are_counted_and_the_largest_told() -> None:
    values = 100 + noise(400) - np.repeat([0.0, 30.0, 20.0, 0.0], 100)
    (said,) = warnings([Examined("iops", of(values), 1)])
    assert said.startswith("iops: the level changes 3 times, the most by ")
    assert said.endswith("down at 101 s")


def test_drift_is_told_for_an_hour() -> None:
    found = of(FALLING)
    assert found.drift == pytest.approx(-20 / 300 * 3600, rel=0.1)
    assert found.drift_low is not None and found.drift_high is not None
    assert found.drift_low < -20 / 300 * 3600 < found.drift_high < 0


def test_a_fall_in_steps_is_a_drift_in_steps_and_a_dip_is_none() -> None:
    down = of(100 + noise(400) - np.repeat([0.0, 10.0, 20.0], [150, 120, 130]))
    assert down.drift_share == 0.0
    assert down.drift_steps == pytest.approx(-0.22, abs=0.02)
    (drift, changes) = warnings([Examined("iops", down, 1)])
    assert drift.startswith("iops: it falls by 22 % from start to end, in steps rather than gradually, so its mean ")
    assert "the level changes 2 times" in changes and "ends" not in changes
    dip = of(100 + noise(400) - np.repeat([0.0, 12.0, 0.0], [130, 130, 140]))
    assert dip.drift_steps == 0.0 and len(dip.changes) == 2


def test_a_series_that_happens_to_end_on_another_level_is_told_so_without_a_drift() -> None:
    found = of(100 + noise(400) - np.repeat([0.0, 9.0, -3.0], [250, 80, 70]))
    assert found.drift_steps == found.drift_share == 0.0
    (said,) = warnings([Examined("iops", found, 1)])
    assert said.endswith(", and it ends 3.2 % higher than it began")


@pytest.mark.parametrize(
    "made", [lambda rng: ar1(rng, 100, 0.95), lambda rng: ar1(rng, 300, 0.9), lambda rng: regimes(rng, 300, 20)]
)
def test_noise_that_lingers_or_switches_hardly_ever_drifts_in_steps(made: Callable[..., Floats]) -> None:
    rng = np.random.default_rng(4)
    assert sum(of(1000 + 10 * made(rng)).drift_steps != 0 for _ in range(100)) <= 2


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=80), st.floats(1e-3, 1e3))
def test_whatever_the_samples_there_are_findings_or_none(values: list[float], interval: float) -> None:
    x = np.array(values)
    x = np.where(np.abs(x) < 1e100, x, np.nan)
    found = findings(np.arange(float(len(x))) * interval, x)
    assert (found is None) == (np.isfinite(x).sum() < FEWEST)
    if found is not None:
        assert all(isinstance(sentence, str) for sentence in warnings([Examined("x", found, 1)]))


def test_findings_are_values_and_times_are_said_in_words() -> None:
    said = [time_words(seconds) for seconds in (0.42, 9.0, 12.4, 119.0, 460.0, 600.0, 30772.0, 7200.0)]
    assert said == ["0.4 s", "9 s", "12 s", "119 s", "7 min 40 s", "10 min", "8 h 33 min", "2 h"]
    assert replace(of(STEADY), n=300) == of(STEADY)
    t, order = np.arange(300.0), np.random.default_rng(2).permutation(300)
    assert findings(t[order], CHANGING[order]) == findings(t, CHANGING)
    assert findings(np.zeros(300), CHANGING) is None


def test_a_stall_is_said_where_it_is_longer_than_a_late_sample() -> None:
    values = np.random.default_rng(3).normal(100, 1, 300)
    values[100:104] = 0.0
    found, quick = (findings(step * np.arange(1.0, 301.0), values) for step in (2.0, 0.1))
    assert found is not None
    assert quick is not None
    assert "load, iops: it stands still for 8 s: at most 1 % of its median" in warnings([Examined("load, iops", found)])
    assert not any("stands still" in said for said in warnings([Examined("load, iops", quick)]))


def test_a_series_that_is_never_steady_is_said_to_be_so() -> None:
    values = 100 + 60 * np.sin(np.arange(400) / 25)
    (said,) = [each for each in warnings([Examined("load, iops", of(values))]) if "SNIA" in each]
    assert said == (
        "load, iops: it is never steady by SNIA's rule: five rounds in a row within 20 % of each other, "
        "rising or falling by at most 10 %"
    )
    assert not any("SNIA" in each for each in warnings([Examined("load, iops", of(values[:40]))]))


def test_samples_that_are_alike_for_no_other_reason_are_said_to_be_worth_few() -> None:
    drawn = np.random.default_rng(4)
    values = 100 + 5 * np.repeat(drawn.standard_normal(40), 50)
    (said,) = [each for each in warnings([Examined("load, iops", of(values))]) if "worth" in each]
    assert said.startswith("load, iops: neighbours are alike, so 2000 samples are worth ")
    assert not any("worth" in each for each in warnings([Examined("x", of(100 + drawn.standard_normal(2000)))]))
    stepping = 100 + drawn.standard_normal(2000) + np.repeat([0.0, 20.0], 1000)
    assert not any("worth" in each for each in warnings([Examined("x", of(stepping))]))
