"""Settings of disks' queues, as trials recorded them."""

from __future__ import annotations

from typing import Any

from storlab.records.derived.settings import settings_of
from storlab.records.run_folder import TrialRecord


def record(trial: int, cell: int = 1, status: Any = "done", **nodes: list[dict[str, Any]]) -> TrialRecord:
    return TrialRecord(trial=trial, round=1, cell=cell, levels={}, status=status, facts=nodes)


def loop(**facts: object) -> dict[str, Any]:
    return {"layer": "loop", "device": "/dev/loop3", **facts}


def test_only_settings_of_queues_are_taken_with_the_layer_that_they_are_of() -> None:
    records = [record(1, host=[{"layer": "file", "size": 5}, loop(scheduler="none", read_ahead_kb=128)])]
    assert settings_of(records) == {1: {"scheduler of loop": "none", "read_ahead_kb of loop": "128"}}


def test_what_differs_between_trials_of_a_cell_is_no_setting_of_it() -> None:
    records = [record(n, host=[loop(scheduler="none", nr_requests=n)]) for n in (1, 2)]
    assert settings_of(records) == {1: {"scheduler of loop": "none"}}


def test_trials_that_failed_say_nothing() -> None:
    assert settings_of([record(1, status="failed", host=[loop(scheduler="none")])]) == {}


def test_nodes_that_differ_are_both_said() -> None:
    found = settings_of([record(1, a=[loop(scheduler="none")], b=[loop(scheduler="bfq")])])
    assert found == {1: {"scheduler of loop": "bfq, none"}}
