"""Waits for locks for each operation of the loads: a count that neither a rate nor a longer trial changes."""

from __future__ import annotations

from collections.abc import Iterable

from storlab.locks.metrics import METRICS, PER_OPERATION
from storlab.measurements import Measurements
from storlab.metrics import Specs, Value
from storlab.records.derived.share_requests import operations

_COUNTED = Specs(METRICS)


def lock_waits_per_operation(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> list[Value]:
    """Of all machines together; none where a load does not count its operations, or nothing was counted."""
    done = [operations(each) for each in loads]
    sums: dict[str, float] = {}
    for each in seen:
        for name, value in each.totals().items():
            sums[name] = sums.get(name, 0.0) + value
    if not all(done) or not done:
        return []
    found = []
    for name, value in sums.items():
        of = _COUNTED.find(name)
        family = name.removesuffix(of.subject) + f"{{{of.family}}}" if of.family else name
        if (spec := PER_OPERATION.get(family)) is not None:
            words = {of.family: of.subject} if of.family else {}
            found.append(spec.value(value / sum(done), **words))
    return found
