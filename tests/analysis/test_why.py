"""What is named underneath a comparison, in which order and words; and by simulation, how often that is false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from report.model.test_chapters import ACKS, COMPARISON
from storlab.analysis.design import Design
from storlab.analysis.stats.anytime import log_evidence_of_means, mean_interval
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, FactDifference, Underneath, from_json, to_json
from storlab.analysis.why.watched import (
    Named,
    Paired,
    correlation,
    is_evidence,
    moves_together,
    named,
    needed_by,
    paired,
    pooled,
    rounds_needed,
    says_the_same,
)
from storlab.metrics import Declarations, MetricSpec
from storlab.probes.base import Probe
from storlab.probes.stacks import SELF, TOTAL
from storlab.probes.tcp.metrics import METRICS
from storlab.registry import probe_types
from storlab.report.language.say import say
from storlab.report.model.why import sentence

from .simulate import MACHINES, metric_frame, noise, trial_frame

LOAD = (
    MetricSpec("iops", "1/s", "higher", quantity="throughput"),
    MetricSpec("ios", "1", quantity="operations"),
    MetricSpec("write.ios", "1", quantity="operations"),
)
PROBE = (
    MetricSpec("disk.{disk}.flushes", "1", noun="flushes of the disk", evidence="rare"),
    MetricSpec("disk.{disk}.writes", "1", noun="writes at the disk"),
    MetricSpec("disk.{disk}.reads", "1", noun="reads at the disk"),
    MetricSpec("disk.{disk}.write_time", "s", noun="of waiting for writes to the disk", evidence="waited"),
    MetricSpec("disk.{disk}.write_size", "B", across="merge", noun="a write at the disk"),
    MetricSpec("switches", "1", noun="context switches", evidence="shared"),
    MetricSpec("pressure", "1", across="max", noun="of the time some task waited for io"),
    MetricSpec("servers.cpu", "1", noun="of CPU time of the servers", evidence="busy"),
    MetricSpec("load.1m", "1", across="max", evidence="none"),
    MetricSpec("bandwidth", "B/s", quantity="throughput"),
    SELF,
    TOTAL,
)
SOURCE = "probe:seen"
SECONDS = 2.0

Numbers = Mapping[str, Sequence[float]]


def steady(value: float, rounds: int = 8, by: float = 0.01, start: int = 0) -> list[float]:
    """A value that varies a little, and not in the same way for every ``start``."""
    return [value * (1 + by * (((start + n) * 7) % 5 - 2)) for n in range(rounds)]


def made(a: Numbers, b: Numbers, **asked: object) -> tuple[pl.DataFrame, pl.DataFrame, Design]:
    """``a`` and ``b``: metric → values, round by round; ``ios`` 1000 where it is not given."""
    rows, trials = [], []
    units = {spec.name: spec.unit for spec in (*LOAD, *PROBE)}
    rounds = len(a["iops"])
    for cell, of in ((1, a), (2, b)):
        numbers = {"ios": [1000.0] * rounds, **of}
        for n in range(rounds):
            trial = 2 * n + cell
            trials.append((trial, n + 1, cell, "done", None))
            for name, values in numbers.items():
                source = "load" if name in ("iops", "ios", "write.ios") else SOURCE
                unit = units.get(name) or next(s.unit for s in PROBE if s.member(name))
                better = "higher" if name == "iops" else "neither"
                rows.append((trial, n + 1, cell, None, source, None, name, values[n], unit, better, "sum"))
    design = Design("t", "iops", {"kind": ("one", "other")}, ((1, {"kind": "one"}), (2, {"kind": "other"})))
    declared = Declarations.union([("load", LOAD), (SOURCE, PROBE)])
    frame = trial_frame(trials).with_columns(measured=pl.lit(SECONDS))
    return frame, metric_frame(rows), replace(design, declared=declared, **asked)  # type: ignore[arg-type]


def compared(a: Numbers, b: Numbers, **asked: object) -> Comparison:
    """The one comparison of such a run, once it has ended."""
    (found,) = summarise(*made(a, b, **asked), ended=True).comparisons
    return found


def why(a: Numbers, b: Numbers, **asked: object) -> Underneath:
    """What differs underneath it."""
    found = compared(a, b, **asked).why
    assert found is not None
    return found


FLUSHES, SIZE, WAITS = "disk.target.flushes", "disk.target.write_size", "disk.target.write_time"
FAST = {"iops": steady(1000, start=0)}
SLOW = {"iops": steady(400, start=2)}


def test_a_flush_for_each_write_is_named_with_both_values_or_without_a_ratio() -> None:
    (flushes,) = why({**FAST, FLUSHES: [10.0] * 8}, {**SLOW, FLUSHES: steady(1000, start=1)}).differences
    assert (flushes.source, flushes.metric, flushes.per) == (SOURCE, FLUSHES, "operation")
    assert (flushes.noun, flushes.agreeing) == ("flushes of the disk", 8)
    assert flushes.a == pytest.approx(0.01) and flushes.b == pytest.approx(1.0, rel=0.03)
    assert flushes.ratio == pytest.approx(0.01, rel=0.03)
    assert flushes.ratio is not None and flushes.low is not None and flushes.high is not None
    assert flushes.low < flushes.ratio < flushes.high < 1
    (flushes,) = why({**FAST, FLUSHES: [0.0] * 8}, {**SLOW, FLUSHES: steady(1000)}).differences
    assert (flushes.a, flushes.ratio, flushes.low, flushes.high) == (0.0, None, None, None)


def test_a_function_that_cpus_are_in_on_one_level_alone_is_named_and_once() -> None:
    spin, caller = "self.mutex_spin_on_owner", "total.dnode_sync"
    both = {"self.read": steady(0.1), caller: steady(0.2)}
    (found,) = why({**FAST, **both}, {**SLOW, **both, spin: steady(0.7, start=1), caller: steady(0.9)}).differences
    assert (found.metric, found.noun, found.a) == (spin, "of busy CPU in mutex_spin_on_owner", 0.0)
    assert found.b == pytest.approx(0.7, rel=0.03)
    assert sentence(COMPARISON, found) == "NVMe/TCP: 70 % of busy CPU in mutex_spin_on_owner, iSCSI: 0 %"


def test_operations_divide_by_the_total_and_busy_cpus_are_cpu_time_for_one_of_them() -> None:
    found = why(*({**of, "ios": [ios] * 8, FLUSHES: [ios] * 8} for of, ios in ((FAST, 2000.0), (SLOW, 800.0))))
    assert (found.differences, found.watched) == ((), 0), "equal in every round, so that it says nothing"
    writes = {"write.ios": [1000.0] * 8}
    (flushes,) = why({**FAST, **writes, FLUSHES: [500.0] * 8}, {**SLOW, **writes, FLUSHES: [1000.0] * 8}).differences
    assert (flushes.a, flushes.b) == (0.5, 1.0)
    (cpu,) = why({**FAST, "servers.cpu": [0.5] * 8}, {**SLOW, "servers.cpu": [1.0] * 8}).differences
    assert (cpu.unit, cpu.a, cpu.b) == ("s", 0.5 * SECONDS / 1000, 1.0 * SECONDS / 1000)
    a, b = {"iops": [1000.0] * 8, FLUSHES: [200.0] * 8}, {"iops": [500.0] * 8, FLUSHES: [2000.0] * 8}
    (flushes,) = why(a, b, partial=frozenset({1, 2})).differences
    assert (flushes.a, flushes.b) == (200 / (1000 * SECONDS), 2000 / (500 * SECONDS))


def test_a_size_is_taken_as_it_is_what_says_the_same_told_once_and_the_surest_and_largest_first() -> None:
    a = {**FAST, SIZE: [131072.0] * 8, FLUSHES: steady(100)}
    b = {**SLOW, SIZE: [65536.0] * 8, FLUSHES: [value * 2 for value in steady(100)]}
    (first,) = why(a, b).differences
    assert {first.metric, *(name.rpartition(":")[2] for name in first.alike)} == {FLUSHES, SIZE}
    a = {**FAST, SIZE: steady(8192), FLUSHES: steady(10), "pressure": steady(0.5, by=0.02)}
    b = {**SLOW, SIZE: steady(4096, start=3), FLUSHES: steady(1000, start=1), "pressure": steady(0.7, by=0.03, start=1)}
    assert [d.metric for d in why(a, b).differences] == [FLUSHES, SIZE, "pressure"]


READS, WRITES = "disk.target.reads", "disk.target.writes"


def test_few_reads_beside_many_writes_explain_nothing_and_a_few_flushes_do() -> None:
    a = {**FAST, READS: steady(10), WRITES: steady(1000, start=1)}
    b = {**SLOW, READS: [0.0] * 8, WRITES: steady(3000, start=2)}
    found = why(a, b)
    assert ([d.metric for d in found.differences], found.watched) == ([WRITES], 2)
    assert [d.metric for d in why({**a, READS: steady(300)}, b).differences] == [WRITES, READS]
    a = {**FAST, WRITES: steady(1000), READS: [0.0] * 8, FLUSHES: [0.0] * 8}
    b = {**SLOW, WRITES: steady(1000, start=3), READS: steady(10, start=1), FLUSHES: steady(10, start=2)}
    assert [d.metric for d in why(a, b).differences] == [FLUSHES]


def test_what_the_machine_does_anyway_is_marked_where_it_is_as_much_a_second() -> None:
    a = {"iops": steady(1000), "ios": steady(2000), "switches": steady(300, start=1)}
    b = {"iops": steady(400, start=2), "ios": steady(800, start=2), "switches": steady(300, start=3)}
    (switches,) = why(a, b).differences
    assert switches.same_rate
    more = {**b, "switches": steady(3000, start=3)}
    assert [d.same_rate for d in why(a, more).differences] == [False]


@pytest.mark.parametrize("name", ["load.1m", "bandwidth", "disk.sda.flushes"])
def test_past_loads_rates_and_other_disks_are_no_evidence(name: str) -> None:
    assert compared({**FAST, name: [1.0] * 8}, {**SLOW, name: [50.0] * 8}).why is None


def test_the_verdicts_own_ratio_and_what_lies_within_a_margin_are_not_named() -> None:
    assert why(*({**of, SIZE: [4096 * value for value in of["iops"]]} for of in (FAST, SLOW))).differences == ()
    for flushes, told in ((1005.0, False), (1015.0, True)):
        found = why({**FAST, FLUSHES: [1000.0] * 8}, {**SLOW, FLUSHES: [flushes] * 8}).differences
        assert bool(found) == told


def test_what_moves_with_the_metric_from_round_to_round_is_told() -> None:
    ratios = [1.5, 2.5, 1.8, 2.2, 2.9, 1.6, 2.0, 2.7]
    a = {"iops": [1000 * r for r in ratios], FLUSHES: [100.0] * 8}
    b = {"iops": [1000.0] * 8, FLUSHES: [100 * r**2 for r in ratios]}
    (flushes,) = why(a, b).differences
    assert flushes.moves == "against"
    still = {**b, FLUSHES: [500.0] * 8}
    assert [d.moves for d in why(a, still).differences] == ["unclear"]


@pytest.mark.parametrize(("waits", "first"), [((1.0, 2.0), WAITS), ((1.0, 0.8), FLUSHES), ((4.0, 1.0), FLUSHES)])
def test_what_is_waited_for_as_long_as_operations_take_longer_comes_first(
    waits: tuple[float, float], first: str
) -> None:
    """Before what moves along, on which an operation has no hold: 2 ms each on one side, 5 ms each on the other."""
    ratios = [1.5, 2.5, 1.8, 2.2, 2.9, 1.6, 2.0, 2.7]
    a = {"iops": [200 * r for r in ratios], FLUSHES: [100.0] * 8, WAITS: steady(waits[0])}
    b = {"iops": [200.0] * 8, "ios": [400.0] * 8, FLUSHES: [100 * r**2 for r in ratios], WAITS: steady(waits[1])}
    found = why(a, b).differences
    assert {difference.metric for difference in found} == {FLUSHES, WAITS}
    assert found[0].metric == first
    assert [d.longer for d in found if d.metric == WAITS] == [pytest.approx(3e-3, rel=0.2) if first == WAITS else None]


def test_settings_that_differ_and_rounds_and_values_that_are_missing_are_said() -> None:
    same = {"read_ahead_kb of loop": "128"}
    settings = {1: {"scheduler of loop": "none", **same}, 2: {"scheduler of loop": "mq-deadline", **same}}
    assert why(FAST, SLOW, settings=settings).facts == (FactDifference("scheduler of loop", "none", "mq-deadline"),)
    a, b = ({name: values[:5] for name, values in each.items()} for each in (FAST, SLOW))
    found = why({**a, FLUSHES: [1.0] * 5}, {**b, FLUSHES: [1000.0] * 5})
    assert (found.rounds, found.differences, found.needed) == (5, (), 6)
    holes = [*steady(1000)[:7], float("nan")]
    found = why({**FAST, FLUSHES: steady(10), SIZE: steady(1)}, {**SLOW, FLUSHES: holes, SIZE: steady(2)})
    assert [d.metric for d in found.differences] == [SIZE]
    assert found.left_out is not None
    assert say(found.left_out) == f"Not examined, because a value is missing in some round: {FLUSHES} of {SOURCE}."


def test_no_verdict_changes_by_what_differs_and_a_run_that_goes_on_is_not_looked_underneath() -> None:
    given = {**FAST, FLUSHES: [0.0] * 8}, {**SLOW, FLUSHES: steady(1000)}
    assert replace(compared(*given), why=None) == compared(FAST, SLOW)
    assert [c.why for c in summarise(*made(*given)).comparisons] == [None]
    summary = summarise(*made(*given), ended=True)
    assert summary.comparisons[0].why is not None and from_json(to_json(summary)) == summary


@pytest.mark.parametrize("probe", probe_types().values(), ids=probe_types())
def test_whatever_a_probe_counts_that_may_say_why_has_words_for_it(probe: type[Probe]) -> None:
    silent = [spec.name for spec in probe.metrics if is_evidence(spec) and not (spec.noun or spec.percentile)]
    assert silent == []


def test_acks_are_told_for_each_request() -> None:
    (spec,) = (spec for spec in METRICS if spec.name == "acks.per-request")
    told = replace(ACKS, metric=spec.name, noun=spec.noun, per="")
    assert sentence(COMPARISON, told) == "iSCSI: 46.0 ACKs per request, NVMe/TCP: 3.90"


SEED, COUNT, STUDIES = 20_261_123, 30, 200
SHARES = st.lists(st.floats(0, 1e9), min_size=2, max_size=12)


def _pair(kind: str, rounds: int, rng: np.random.Generator, effect: float = 0.0) -> Paired:
    """Metrics of one study: they share the machine's noise and the order of each round. The first may differ."""
    values = np.exp(np.clip(noise(kind, COUNT, 2 * rounds, rng) + noise(kind, 1, 2 * rounds, rng), -300, 300))
    first = rng.random(rounds) < 0.5
    a, b = (np.where(first == side, values[:, ::2], values[:, 1::2]) for side in (True, False))
    a[0] *= math.exp(effect)
    return paired(a, b)


def one_row(a: object, b: object) -> Paired:
    return paired(np.array([a], dtype=np.float64), np.array([b], dtype=np.float64))


def rows(found: list[Named]) -> list[int]:
    return [each.row for each in found]


@pytest.mark.parametrize("kind", MACHINES)
def test_nothing_is_named_in_nineteen_of_twenty_studies_in_which_nothing_differs(kind: str) -> None:
    rng = np.random.default_rng(SEED)
    wrong = sum(bool(named(_pair(kind, 8, rng), [0.0] * COUNT, 0.05)) for _ in range(STUDIES))
    assert wrong <= STUDIES / 20


@pytest.mark.parametrize("kind", ["normal", "drift", "regimes"])
def test_one_that_differs_fourfold_is_named_in_eight_rounds_and_no_other(kind: str) -> None:
    rng = np.random.default_rng(SEED)
    found = [named(_pair(kind, 8, rng, math.log(4)), [0.01] * COUNT, 0.05) for _ in range(20)]
    assert sum(rows(each) == [0] for each in found) >= 19


def test_no_single_round_names_anything_and_what_is_no_amount_or_of_neither_side_is_not_compared() -> None:
    assert named(one_row([1e6, *[1.0] * 9], [1.0] * 10), [0.0], 0.05) == []
    for bad in (math.nan, math.inf, -1.0):
        pair = one_row([1.0, bad], [1.0, 2.0])
        assert not (pair.usable[0] or pair.varies[0] or pair.x.any())
    pair = one_row([0.0, 0.0], [0.0, 0.0])
    assert pair.usable[0] and not pair.varies[0]


@given(SHARES, st.data())
def test_exchanging_the_sides_turns_the_sign_and_nothing_else(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(0, 1e9), min_size=len(values), max_size=len(values)))
    one, other = one_row(values, others), one_row(others, values)
    assert one.x == pytest.approx(-other.x)
    assert log_evidence_of_means(one.x) == pytest.approx(log_evidence_of_means(other.x))


def test_the_evidence_against_0_is_what_the_interval_leaves_out_and_equal_values_give_the_most() -> None:
    values = np.array([0.3, 0.5, 0.4, 0.35, 0.6, 0.42, 0.5])
    (evidence,) = log_evidence_of_means(values[None, :])
    assert mean_interval(values, math.exp(-evidence)).low == pytest.approx(0.0, abs=1e-9)
    same, nearly, none = log_evidence_of_means(np.array([[0.7] * 6, [0.7] * 5 + [0.71], [0.0] * 6]))
    assert same > nearly > none
    assert same == pytest.approx(2.5 * math.log(61))
    assert none == 0.0


@given(st.lists(st.floats(-5, 30), min_size=1, max_size=40))
def test_what_is_needed_is_what_closed_testing_asks_of_families_of_one(evidence: list[float]) -> None:
    asked = thresholds([Hypothesis(at, "a", "b", log) for at, log in enumerate(evidence)], 0.05)
    assert needed_by(np.array(evidence), 0.05) == pytest.approx(asked, rel=1e-3)


@pytest.mark.parametrize("metrics", [1, 10, 40])
def test_rounds_needed_are_the_fewest_in_which_equal_log_ratios_are_named(metrics: int) -> None:
    def first_named(rounds: int) -> bool:
        nearly = 1 + 1e-3 * np.random.default_rng(SEED).normal(size=(metrics, rounds))
        nearly[0] = 2.0
        return 0 in rows(named(paired(nearly, np.ones((metrics, rounds))), [0.01] * metrics, 0.05))

    needed = rounds_needed(metrics, 0.05)
    assert first_named(needed) and not first_named(needed - 1)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=20))
def test_the_rank_correlation_is_that_of_scipy(points: list[tuple[int, int]]) -> None:
    x, y = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert correlation(x, y) == pytest.approx(float(spearmanr(x, y).statistic))
    else:
        assert correlation(x, y) == 0.0


def test_values_that_rise_together_move_together_inverses_say_the_same_and_infinite_ratios_stay_bounded() -> None:
    x = np.arange(8.0)
    others = [x**3, -x, np.array([3.0, 1, 4, 1, 5, 2, 6, 0])]
    assert [moves_together(x, y) for y in others] == [1, -1, 0]
    assert moves_together(x[:5], x[:5]) == 0, "too few say nothing"
    twice = np.full(6, math.log(2))
    ratios = np.array([twice, -twice, np.full(6, math.log(2.2)), [*twice[:5], 0.0]])
    assert says_the_same(twice, ratios).tolist() == [True, True, False, False]
    one, none = one_row([2.0] * 3, [1.0] * 3), one_row([2.0] * 3, [0.0] * 3)
    assert pooled([one, one]).x == pytest.approx(one.x)
    both = pooled([one, none])
    assert not both.logs[0]
    assert both.x == pytest.approx((1 + 1 / 3) / 2)
