"""What each operation of the loads cost the CPUs, and how many operations a busy CPU carries."""

from __future__ import annotations

from collections.abc import Iterable

from storlab.measurements import Measurements
from storlab.metrics import Value
from storlab.probes.counters.probe import BUSY, PER_CORE, PER_OPERATION
from storlab.records.derived.share_requests import operations


def per_cpu(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> list[Value]:
    """Of all nodes together; none where a load does not count its operations, or a machine something of these."""
    done = [operations(each) for each in loads]
    if not done or not all(done):
        return []
    totals = [each.totals() for each in seen]
    sums = {
        name: sum(each[name] for each in totals)
        for name in PER_OPERATION
        if totals and all(name in each for each in totals)
    }
    found = [spec.value(sums[name] / sum(done)) for name, spec in PER_OPERATION.items() if name in sums]
    if sums.get(BUSY.name):
        found.append(PER_CORE.value(sum(done) / sums[BUSY.name]))
    return found
