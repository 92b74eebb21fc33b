"""Callers that come and go, over the rounds of a run: zeros, what is named underneath, and the report's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from analysis.simulate import metric_frame, trial_frame
from storlab.analysis.design import Design
from storlab.analysis.estimates import with_zeros
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Summary
from storlab.metrics import Declarations, MetricSpec
from storlab.probes.locks.metrics import METRICS
from storlab.report.model.nodes import lock_tables

SOURCE = "probe:locks"
LOAD = (MetricSpec("iops", "1/s", "higher", quantity="throughput"), MetricSpec("ios", "1", quantity="operations"))
DECLARED = Declarations.union([("load", LOAD), (SOURCE, METRICS)])
OPERATIONS = 1000

# Waits for 1,000 calls with one allocator, as seen in a guest with four CPUs.
SEEN = {"zio_allocate_dispatch": 112, "zio_dva_throttle": 39, "metaslab_alloc_dva": 104, "zil_itx_assign": 200}
GROUPS = {"metaslab": ("zio_allocate_dispatch", "zio_dva_throttle", "metaslab_alloc_dva"), "zil": ("zil_itx_assign",)}


def summary(one: Mapping[str, float], other: Mapping[str, float], seed: int, rounds: int = 12) -> Summary:
    """A run of two levels, whose callers wait as often on average; the second level is 10 % faster."""
    rng, rows = np.random.default_rng(seed), list[tuple[object, ...]]()
    trials: list[tuple[int, int, int, str, str | None]] = []
    for n in range(rounds):
        for cell, callers, speed in ((1, one, 1000), (2, other, 1100)):
            trial = 2 * n + cell
            trials.append((trial, n + 1, cell, "done", None))
            counted = {f"waits.mutex.{name}": float(rng.poisson(mean)) for name, mean in callers.items()}
            found = {name: count for name, count in counted.items() if count}
            found |= {name.replace("waits.", "wait-time."): count * rng.gamma(9, 1e-6) for name, count in found.items()}
            found["waits"] = sum(counted.values())
            for group, names in GROUPS.items():
                for kind in ("waits", "wait-time"):
                    found[f"{kind}.{group}"] = sum(found.get(f"{kind}.mutex.{name}", 0.0) for name in names)
            found |= {"iops": speed * rng.normal(1, 0.01), "ios": OPERATIONS}
            for name, value in found.items():
                source = "load" if name in ("iops", "ios") else SOURCE
                unit = DECLARED[source].find(name).unit
                better = "higher" if name == "iops" else "lower"
                rows.append((trial, n + 1, cell, None, source, None, name, value, unit, better, "sum"))
    cells = ((1, {"allocators": "1"}), (2, {"allocators": "4"}))
    design = Design("t", "iops", {"allocators": ("1", "4")}, cells)
    frame = trial_frame(trials).with_columns(measured=pl.lit(2.0))
    return summarise(frame, metric_frame(rows), replace(design, declared=DECLARED), ended=True)


def named(found: Summary) -> set[str]:
    (comparison,) = found.comparisons
    assert comparison.why is not None
    return {each.metric for each in comparison.why.differences}


def test_a_caller_that_no_longer_waits_is_named_in_20_of_20_studies() -> None:
    for seed in range(20):
        differing = named(summary(SEEN, {**SEEN, "zio_allocate_dispatch": 9}, seed))
        assert "waits.mutex.zio_allocate_dispatch" in differing, seed
        assert not any("zil_itx_assign" in name for name in differing), (seed, differing)


def test_one_that_is_only_on_one_side_is_named_and_is_0_on_the_other() -> None:
    found = summary(SEEN, {name: mean for name, mean in SEEN.items() if name != "zio_dva_throttle"}, 1)
    (comparison,) = found.comparisons
    assert comparison.why is not None
    (difference,) = [each for each in comparison.why.differences if each.metric == "waits.mutex.zio_dva_throttle"]
    assert difference.b == 0 and difference.a == pytest.approx(39 / OPERATIONS, rel=0.2)
    assert not comparison.why.left_out


def test_a_group_that_waits_less_is_named_and_one_that_waits_as_often_is_not() -> None:
    found = summary(SEEN, {**SEEN, "zio_allocate_dispatch": 9, "metaslab_alloc_dva": 50}, 5)
    assert "waits.metaslab" in named(found) and "waits.zil" not in named(found)
    (comparison,) = found.comparisons
    assert comparison.why is not None
    (group,) = [each for each in comparison.why.differences if each.metric == "waits.metaslab"]
    assert group.noun == "waits for locks by the group metaslab"
    assert group.a == pytest.approx(255 / OPERATIONS, rel=0.1) and group.b == pytest.approx(98 / OPERATIONS, rel=0.1)


def test_two_alike_have_nothing_named_in_40_of_40_studies() -> None:
    assert [named(summary(SEEN, SEEN, seed)) for seed in range(100, 140)] == [set()] * 40


def test_what_was_not_watched_is_not_0() -> None:
    rows = [
        (1, 1, 1, None, SOURCE, None, "waits", 3.0, "1", "lower", "sum"),
        (1, 1, 1, None, SOURCE, None, "waits.mutex.f", 3.0, "1", "lower", "sum"),
        (2, 1, 2, None, SOURCE, None, "waits", 0.0, "1", "lower", "sum"),
        (3, 2, 1, None, "load", None, "iops", 9.0, "1/s", "higher", "sum"),
    ]
    frame = metric_frame(rows)
    found = with_zeros(frame, DECLARED)
    assert found[: frame.height].equals(frame)
    assert found[frame.height :].select("trial", "metric", "value", "unit").rows() == [(2, "waits.mutex.f", 0.0, "1")]
    assert with_zeros(frame, Declarations()).equals(frame)


def test_who_is_displaced_in_one_trial_keeps_its_count_and_who_is_foremost_in_none_is_left_out() -> None:
    many = {f"f{n}": 100.0 + n for n in range(40)}
    rows = [
        (trial, trial, 1, None, SOURCE, None, f"waits.mutex.{name}", value, "1", "lower", "sum")
        for trial, found in ((1, many | {"f0": 1000.0}), (2, many))
        for name, value in found.items()
    ]
    kept = with_zeros(metric_frame(rows), DECLARED)
    assert kept.filter(pl.col("metric") == "waits.mutex.f0")["value"].to_list() == [1000.0, 100.0]
    assert {name.rpartition(".")[2] for name in kept["metric"]} == {"f0", *(f"f{n}" for n in range(16, 40))}
    assert not (kept["value"] == 0).any()


def test_the_report_has_a_row_a_caller_and_a_column_a_level() -> None:
    tables = lock_tables(summary(SEEN, {**SEEN, "zio_allocate_dispatch": 0}, 3), DECLARED)
    groups = ["Time waited for locks by group", "Waits for locks by group"]
    assert [each.title for each in tables] == [*groups, "Time waited for locks", "Waits for locks"]
    assert {each.columns for each in tables} == {("who waited", "allocators=1", "allocators=4")}
    assert {row[0] for row in tables[1].rows} == {"metaslab", "zil"}
    assert tables[3].rows[0][0] == "zil_itx_assign (mutex)"
    dispatch = next(row for row in tables[3].rows if row[0].startswith("zio_allocate_dispatch"))
    assert dispatch[2].startswith("0")
