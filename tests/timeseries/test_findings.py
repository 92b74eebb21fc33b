"""What is found in a series, and what is worth a sentence, in twelve hours of MySQL as well."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.report.language.phrases import time_words
from storlab.report.language.say import say
from storlab.timeseries.findings import FEWEST, Examined, SeriesFindings, findings, remarks
from storlab.timeseries.variability import times_least

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


def test_a_steady_series_has_no_warning_and_warm_up_drift_and_changes_one_each() -> None:
    found = of(STEADY, 0.1)
    assert found.interval == pytest.approx(0.1)
    assert found.duration == pytest.approx(30.0)
    assert found.steady_snia == pytest.approx(6.0)
    assert found.changes == () and found.drift_share == 0.0 and found.effective > 150
    assert warnings([Examined("load", "iops", found, 1)]) == []
    for values, interval, said in (
        (WARMING, 1.0, "the first 45 s look like warm-up (MSER-5), without which the mean is 5.6 % higher"),
        (FALLING, 1.0, "it falls by 20 % over the trial (Mann-Kendall), so its mean depends on how long it ran"),
        (CHANGING, 0.1, "the level falls by 10 % at 15 s"),
    ):
        assert told(values, interval) == [f"load, iops: {said}"]


def warnings(examined: Iterable[Examined]) -> list[str]:
    return [say(remark) for remark in remarks(examined)]


def told(values: Floats, interval: float = 1.0, about: str = "") -> list[str]:
    """What is said of one series, about that."""
    return [said for said in warnings([Examined("load", "iops", of(values, interval), 1)]) if about in said]


def test_a_finding_of_many_trials_is_said_once_and_of_a_few_levels_one_by_one() -> None:
    def said(
        where: Container[int], trials: range, usual: Floats = STEADY, other: Floats = CHANGING, level: str = ""
    ) -> str:
        (found,) = warnings([Examined("load", "tps", of(other if n in where else usual), n, level) for n in trials])
        return found

    six, fall, slow = range(1, 7), "falls by 10 % at 2 min 30 s", "the first 45 s look like warm-up (MSER-5)"
    assert said({3}, range(1, 31), WARMING, STEADY).startswith(f"load, tps in 29 of 30 trials: {slow}")
    assert said({2, 5}, six) == f"load, tps in trials 2 and 5 of 6: the level {fall}, and {fall}"
    assert said(six, six) == "load, tps in all 6 trials: the level changes within the trial, once"
    assert said({2}, six, level="ext4").startswith("load, tps in trial 2 (ext4) of 6: the level falls")
    assert said({93}, range(90, 95)).startswith("load, tps in 1 of 5 trials (93): the level falls")
    assert said((), range(1, 3), FALLING).startswith("load, tps in both trials: it falls by up to 20 % over the trial")
    levels = [Examined("load", "tps", of(CHANGING), 1, "off"), Examined("load", "tps", of(CHANGING), 2, "on")]
    assert warnings(levels) == [f"load, tps ({level}): the level {fall}" for level in ("off", "on")]


def test_a_change_too_small_is_not_said_a_step_is_no_drift_and_a_slope_no_staircase() -> None:
    assert of(1000 + noise(3000) + np.repeat([0.0, 5.0], 1500)).changes == ()
    assert of(1000 + noise(3000) + np.linspace(0, 5, 3000)).drift_share == 0.0
    assert of(CHANGING).drift_share == 0.0 and of(FALLING).changes == ()
    values = STEADY - np.concatenate([np.full(100, 40.0), np.zeros(200)])
    (said,) = told(values)
    assert of(values).changes and "warm-up" in said


def test_several_changes_are_counted_and_the_largest_told_and_drift_is_for_an_hour() -> None:
    (said,) = told(100 + noise(400) - np.repeat([0.0, 30.0, 20.0, 0.0], 100))
    assert said.startswith("load, iops: the level changes 3 times, the most by ") and said.endswith(
        "by 30 % down at 100 s"
    )
    found = of(FALLING)
    assert found.drift == pytest.approx(-20 / 300 * 3600, rel=0.1)
    assert found.drift_low is not None and found.drift_high is not None
    assert found.drift_low < -20 / 300 * 3600 < found.drift_high < 0


def test_a_fall_is_a_share_of_what_was_there_before_and_begins_where_it_happened() -> None:
    cliff = np.concatenate([np.full(200, 800.0), np.full(100, 160.0)]) + noise(300)
    assert [change.t for change in of(cliff, 0.5).changes] == [100.0]
    assert "load, iops: the level falls by 80 % at 100 s" in told(cliff, 0.5)
    found = of(cliff, 0.5)
    found = replace(found, changes=(replace(found.changes[0], moved=400.0 * 1024**2),))
    (said,) = warnings([Examined("load", "iops", found, 1, unit="1/s")])
    assert "by 80 % at 100 s (800/s to 160/s, after 400 MiB)" in said
    assert of(np.linspace(1000.0, 200.0, 300) + noise(300)).drift_share == pytest.approx(-0.8, abs=0.01)


def test_a_series_is_steady_after_its_last_change_or_never_if_it_drifts() -> None:
    cliff = np.concatenate([np.full(100, 800.0), np.full(200, 160.0)]) + noise(300)
    steady = of(cliff).steady_snia
    assert steady is not None and steady > 100
    late = of(np.concatenate([np.full(250, 800.0), np.full(50, 160.0)]) + noise(300))
    assert late.steady_snia is None or late.steady_snia > 250
    assert of(np.linspace(1000.0, 600.0, 300) + noise(300)).steady_snia is None


def test_a_fall_in_steps_is_a_drift_in_steps_and_a_dip_or_another_level_at_the_end_is_none() -> None:
    falling = 100 + noise(400) - np.repeat([0.0, 10.0, 20.0], [150, 120, 130])
    assert of(falling).drift_share == 0.0 and of(falling).drift_steps == pytest.approx(-0.20, abs=0.01)
    (drift, changes) = told(falling)
    assert drift.startswith(
        "load, iops: it falls by 20 % from start to end, in steps rather than gradually, so its mean "
    )
    assert "the level changes 2 times" in changes and "ends" not in changes
    dip = of(100 + noise(400) - np.repeat([0.0, 12.0, 0.0], [130, 130, 140]))
    assert dip.drift_steps == 0.0 and len(dip.changes) == 2
    higher = 100 + noise(400) - np.repeat([0.0, 9.0, -3.0], [250, 80, 70])
    assert of(higher).drift_steps == of(higher).drift_share == 0.0
    assert [said.rpartition(", ")[2] for said in told(higher)] == ["and it ends 3.2 % higher than it began"]


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
        assert all(isinstance(sentence, str) for sentence in warnings([Examined("load", "x", found, 1)]))


def test_findings_are_values_and_times_are_said_in_words() -> None:
    said = [time_words(seconds) for seconds in (0.42, 9.0, 12.4, 119.0, 460.0, 600.0, 30772.0, 7200.0)]
    assert said == ["0.4 s", "9 s", "12 s", "119 s", "7 min 40 s", "10 min", "8 h 33 min", "2 h"]
    assert replace(of(STEADY), n=300) == of(STEADY)
    t, order = np.arange(300.0), np.random.default_rng(2).permutation(300)
    assert findings(t[order], CHANGING[order]) == findings(t, CHANGING)
    assert findings(np.zeros(300), CHANGING) is None


def test_a_stall_is_said_where_it_is_longer_than_a_late_sample_and_so_is_what_is_never_steady() -> None:
    values = np.random.default_rng(3).normal(100, 1, 300)
    values[100:104] = 0.0
    assert told(values, 2.0, "still") == ["load, iops: it stands still for 8 s: at most 1 % of its median"]
    assert not told(values, 0.1, "still")
    values = 100 + 60 * np.sin(np.arange(400) / 25)
    assert told(values, about="SNIA") == [
        "load, iops: it is not steady by SNIA's rule, or not to its end: five rounds in a row within 20 % of "
        "each other, rising or falling by at most 10 %"
    ]
    assert not told(values[:40], about="SNIA")


def test_samples_that_are_alike_for_no_other_reason_are_said_to_be_worth_few() -> None:
    drawn = np.random.default_rng(4)
    (said,) = told(100 + 5 * np.repeat(drawn.standard_normal(40), 50), about="worth")
    assert said.startswith("load, iops: neighbours are alike, so 2000 samples are worth ")
    assert not told(100 + drawn.standard_normal(2000), about="worth")
    assert not told(100 + drawn.standard_normal(2000) + np.repeat([0.0, 20.0], 1000), about="worth")


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


FACTORS = {"alike": None, "published": 2854.07 / 2164.12}


def said(source: str) -> list[str]:
    percent, at = {"alike": ("1.1", "9 h 30 min"), "published": ("1.2", "9 h 28 min")}[source]
    return [
        f"off, tps: it falls by {percent} % from start to end, in steps rather than gradually, "
        "so its mean depends on how long it ran",
        f"off, tps: the level falls by {percent} % at 4 h 54 min",
        f"on, tps: the level changes 2 times, the most by 2.7 % up at {at}, and it ends 1.3 % higher than it began",
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_both_are_steady_by_snia_though_their_changes_and_drift_are_named(source: str) -> None:
    off, on = (findings(*samples(source, setting)) for setting in ("off", "on"))
    assert off is not None and on is not None
    for found in (off, on):
        assert found.steady_snia == 300.0 and found.effective < 25 and 0.008 < (found.cv or 0) < 0.011
    assert [round(change.t / 3600, 1) for change in off.changes] == [4.9]
    assert [round(change.t / 3600, 1) for change in on.changes] == [8.5, 9.5]
    assert warnings([Examined("off", "tps", off, 1), Examined("on", "tps", on, 1)]) == said(source)
    assert off.drift_high is not None and off.drift_high < 0
    assert on.drift_low is not None and on.drift_high is not None and on.drift_low < 0 < on.drift_high
    a, b = (float(samples(source, setting)[1].var()) for setting in ("off", "on"))
    assert times_least([a, b]) == [1.0, pytest.approx(FACTORS[source] or b / a, rel=1e-4)]
