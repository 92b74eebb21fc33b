"""Requests to shares are divided by what the loads did, where all of it is known."""

from __future__ import annotations

from dataclasses import replace

from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.probes.requests.probe import ALL, PER_OPERATION
from storlab.records.derived.share_requests import requests_per_operation

READ, WRITE, BOTH = (MetricSpec(f"{way}ios", "1", quantity="operations") for way in ("read.", "write.", ""))
EVENTS = MetricSpec("events", "1", quantity="operations")


def counted(*values: tuple[MetricSpec, float]) -> Measurements:
    specs = tuple(spec for spec, _ in values)
    return replace(Measurements(metric_frame([spec.value(value) for spec, value in values])), declared=specs)


def test_requests_of_all_nodes_are_divided_by_the_operations_of_all_loads() -> None:
    loads = [counted((READ, 30), (WRITE, 10)), counted((EVENTS, 10))]
    assert requests_per_operation(loads, [counted((ALL, 60)), counted((ALL, 40))]) == [PER_OPERATION.value(2.0)]


def test_a_total_is_not_counted_beside_its_parts() -> None:
    assert requests_per_operation([counted((READ, 30), (BOTH, 40))], [counted((ALL, 40))]) == [PER_OPERATION.value(1.0)]


def test_there_is_none_where_anything_is_unknown() -> None:
    nothing = counted((MetricSpec("elapsed", "s"), 1.0))
    assert requests_per_operation([counted((EVENTS, 1)), nothing], [counted((ALL, 40))]) == []
    assert requests_per_operation([counted((EVENTS, 1))], [counted((ALL, 40)), nothing]) == []
    assert requests_per_operation([counted((EVENTS, 1))], []) == []
