"""What each transaction cost: counts of one end of a chain for each transaction of all loads."""

from __future__ import annotations

import pytest

from storlab.measurements import Measurements, metric_frame
from storlab.metrics import TARGET, Value
from storlab.records.derived.per_transaction import per_transaction, watched_above

LOAD = Measurements(metric_frame([Value("transactions", 1000, "1")]))
FLUSHES, BYTES = f"disk.{TARGET}.flushes", f"disk.{TARGET}.bytes_written"


def seen(**counted: float) -> Measurements:
    names = {"flushes": FLUSHES, "written": BYTES, "cpu": "cpu.busy.time"}
    return Measurements(metric_frame(Value(names[name], number, "1") for name, number in counted.items()))


def costs(
    at_load: list[Measurements], below: dict[str, Measurements], above: dict[str, set[str]] | None = None
) -> dict[str, float]:
    known = {node: (above or {}).get(node, set()) for node in below}
    found = per_transaction([LOAD], at_load, below, known)
    return {each.metric.removesuffix(".per-transaction"): each.value for each in found}


def test_of_disks_that_stand_on_each_other_the_nearest_count() -> None:
    below = {"host": seen(written=8_400_000, flushes=1010), "db": seen(written=8_000_000, flushes=1000)}
    found = costs([seen(cpu=2.0)], below, {"host": {"db"}})
    assert found == pytest.approx({"bytes_written": 8000, "flushes": 1.0, "cpu.time": 0.002})


def test_a_node_without_the_disks_is_passed_over() -> None:
    assert costs([], {"db": seen(cpu=1.0), "host": seen(flushes=1010)}, {"host": {"db"}})["flushes"] == 1.01


def test_disks_beside_each_other_are_added() -> None:
    assert costs([], {"one": seen(flushes=400), "two": seen(flushes=600)}) == {"flushes": 1.0}


def test_disks_where_the_load_runs_are_those_under_test() -> None:
    assert costs([seen(flushes=500)], {"host": seen(flushes=1010)}) == {"flushes": 0.5}


def test_there_is_none_where_a_load_counts_no_transactions() -> None:
    assert per_transaction([LOAD, seen(cpu=1.0)], [seen(flushes=1)], {}, {}) == []


def test_who_stands_on_a_node_does_so_with_all_of_its_machine() -> None:
    machine = {"client": "c", "db": "d", "other": "d", "host": "h"}
    standing = {"host": ["db", "client", "gone"], "other": ["client"]}
    assert watched_above(standing, machine) == {"host": {"other"}, "other": set()}
