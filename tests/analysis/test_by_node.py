"""Estimates node by node: what is compared and stalls, where several nodes have them, and the host's load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from storlab.analysis.design import CompareSpec, Design
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Estimate, Summary, from_json, to_json

NODES = ("vm-1", "vm-2", "vm-10")
ROUNDS = 5
COMPARED = (CompareSpec("fs", metrics=("bandwidth", "probe:host-load:cpu.user")),)


def rows(cell: int, number: int, nodes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    def row(node: str | None, source: str, metric: str, value: float, unit: str = "1") -> dict[str, Any]:
        place: dict[str, Any] = {
            "trial": 10 * number + cell,
            "round": number,
            "cell": cell,
            "node": node,
            "source": source,
        }
        return place | {
            "job": None,
            "metric": metric,
            "value": value,
            "unit": unit,
            "better": "higher",
            "across": "sum",
        }

    for share, node in enumerate(nodes, start=1):
        yield row(node, "load", "write.bandwidth", 100.0 * share + number, "B/s")
        yield row(node, "load", "write.bytes", 1e6 * share, "B")
        yield row(node, "probe:stalls", "stall.longest", 0.1 * share, "s")
    yield row(None, "load", "write.bandwidth", 100.0 * sum(range(len(nodes) + 1)), "B/s")
    busy = [(guest, "", 99.0) for guest in (*nodes[:2], None)]
    for machine, end, load in (*busy, ("host", "@host", 7.0), (None, "@host", 7.0)):
        yield row(machine, f"probe:host-load{end}", "load.1m", load)
        yield row(machine, f"probe:host-load{end}", "cpu.user", load / 100)


def summary(nodes: tuple[str, ...], comparisons: tuple[CompareSpec, ...] = ()) -> Summary:
    cells = ((1, {"fs": "a"}), (2, {"fs": "b"}))
    places = [(cell, number) for number in range(1, ROUNDS + 1) for cell, _ in cells]
    trials = pl.DataFrame(
        [(10 * number + cell, number, cell, "done", None) for cell, number in places],
        schema={"trial": pl.Int64, "round": pl.Int64, "cell": pl.Int64, "status": pl.String, "reason": pl.String},
        orient="row",
    )
    metrics = pl.DataFrame([row for cell, number in places for row in rows(cell, number, nodes)])
    return summarise(trials, metrics, Design("t", "bandwidth", {"fs": ("a", "b")}, cells, comparisons))


def of(found: Summary, cell: int = 1) -> dict[tuple[str | None, str], Estimate]:
    return {(e.node, e.metric): e for e in found.by_node if e.cell == cell}


def test_what_is_compared_and_stalls_are_estimated_for_each_node_in_the_order_of_their_numbers() -> None:
    found = of(summary(NODES))
    assert list(found) == [
        *((node, metric) for node in NODES for metric in ("write.bandwidth", "stall.longest")),
        ("host", "load.1m"),
    ]
    assert found["vm-10", "write.bandwidth"].mean == pytest.approx(303.0)
    assert found["vm-10", "write.bandwidth"].rounds == ROUNDS
    assert found["vm-2", "stall.longest"].mean == pytest.approx(0.2)


def test_the_hosts_load_is_its_own_and_not_that_of_the_busiest_guest() -> None:
    assert of(summary(NODES))["host", "load.1m"].mean == pytest.approx(7.0)


def test_nodes_add_up_to_all_of_them_together() -> None:
    found = summary(NODES)
    each = [e.mean for (_, metric), e in of(found).items() if metric == "write.bandwidth"]
    assert sum(each) == pytest.approx(609.0)


def test_a_lone_node_is_not_shown_beside_itself() -> None:
    assert list(of(summary(("vm-1",)))) == [("host", "load.1m")]


def test_a_probes_metric_that_is_compared_is_seen_on_each_of_several_machines() -> None:
    """Of one end of the chain: the host has numbers of its own."""
    assert {node for node, metric in of(summary(NODES, COMPARED)) if metric == "cpu.user"} == {"vm-1", "vm-2"}


def test_estimates_of_nodes_come_back_from_json() -> None:
    found = summary(NODES)
    assert from_json(to_json(found)) == found
