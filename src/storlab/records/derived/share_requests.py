"""Requests to shares for each operation of the loads: a count that neither a rate nor a longer trial changes."""

from __future__ import annotations

from collections.abc import Iterable

from storlab.measurements import Measurements
from storlab.metrics import Value, specs_of
from storlab.probes.requests.probe import ALL, PER_OPERATION


def requests_per_operation(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> list[Value]:
    """Of all nodes together; none where a load does not count its operations, or nothing was counted."""
    done = [operations(each) for each in loads]
    requests = [each.totals().get(ALL.name) for each in seen]
    counted = [each for each in requests if each is not None]
    if not counted or len(counted) < len(requests) or not all(done):
        return []
    return [PER_OPERATION.value(sum(counted) / sum(done))]


def operations(load: Measurements) -> float:
    """Its operations in all directions; where their total is there, too, that."""
    specs, totals = specs_of(load.declared), load.totals()
    found = {name: value for name, value in totals.items() if specs.find(name).quantity == "operations"}
    return sum(value for name, value in found.items() if "." not in name or name.rpartition(".")[2] not in found)
