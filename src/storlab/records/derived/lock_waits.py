"""Waits for locks for each operation of the loads: a count that neither a rate nor a longer trial changes. And which
share of what all groups waited each group has.
"""

from __future__ import annotations

from collections.abc import Iterable

from storlab.locks.metrics import GROUP, METRICS, PER_OPERATION, SHARES
from storlab.measurements import Measurements
from storlab.metrics import Specs, Value
from storlab.records.derived.share_requests import operations

_COUNTED = Specs(METRICS)


def lock_waits_per_operation(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> list[Value]:
    """Of all machines together; none where a load does not count its operations, or nothing was counted."""
    done = [operations(each) for each in loads]
    if not all(done) or not done:
        return []
    found = []
    for name, value in _together(seen).items():
        family, word = _family(name)
        if (spec := PER_OPERATION.get(family)) is not None:
            found.append(spec.value(value / sum(done), **word))
    return found


def lock_shares(seen: Iterable[Measurements]) -> list[Value]:
    """Of all machines together; none where no group waited."""
    sums: dict[str, dict[str, float]] = {}
    for name, value in _together(seen).items():
        family, word = _family(name)
        if family in SHARES:
            sums.setdefault(family, {})[word[GROUP]] = value
    return [
        SHARES[family].value(value / sum(groups.values()), group=group)
        for family, groups in sums.items()
        for group, value in groups.items()
        if any(groups.values())
    ]


def _together(seen: Iterable[Measurements]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for each in seen:
        for name, value in each.totals().items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def _family(name: str) -> tuple[str, dict[str, str]]:
    """The name as it is declared, and what stands in the place of its word, if it has one."""
    of = _COUNTED.find(name)
    if not of.family:
        return name, {}
    return name.removesuffix(of.subject) + f"{{{of.family}}}", {of.family: of.subject}
