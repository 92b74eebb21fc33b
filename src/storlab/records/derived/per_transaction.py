"""What each transaction of a database cost: counts, which tell set-ups apart where rates are too noisy.

Mark Callaghan judges regressions of databases by these, see http://smalldatum.blogspot.com.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from storlab.measurements import Measurements
from storlab.metrics import TARGET, MetricSpec, Value

TRANSACTIONS = "transactions"
"""The metric by which a load counts them."""

_NOUNS = {
    "bytes_written": ("B", f"disk.{TARGET}.bytes_written", "written to the disk for each transaction"),
    "flushes": ("1", f"disk.{TARGET}.flushes", "flushes of the disk for each transaction"),
    "cpu.time": ("s", "cpu.busy.time", "of CPU time for each transaction"),
    "context_switches": ("1", "context_switches", "context switches for each transaction"),
}
METRICS: Mapping[str, MetricSpec] = {
    counted: MetricSpec(f"{name}.per-transaction", unit, "lower", "none", noun=noun, evidence="none")
    for name, (unit, counted, noun) in _NOUNS.items()
}
"""What ``host-load`` counts → the same for each transaction; CPU and switches are of the machine with the clients."""


def declares(loads: Iterable[Iterable[MetricSpec]]) -> tuple[MetricSpec, ...]:
    """What there may be where all of these loads count transactions."""
    each = [any(spec.name == TRANSACTIONS for spec in specs) for specs in loads]
    return tuple(METRICS.values()) if each and all(each) else ()


def per_transaction(
    loads: Iterable[Measurements], seen: Iterable[Measurements], below: Iterable[Measurements]
) -> list[Value]:
    """Of all nodes together; none where a load counts no transactions.

    ``seen``: by ``host-load`` where the loads ran; ``below``: on the underlying nodes, which have the disks under test
    where the former have none.
    """
    counted = [each.totals().get(TRANSACTIONS) for each in loads]
    if not counted or not all(counted):
        return []
    at_load, at_disk = [each.totals() for each in seen], [each.totals() for each in below]
    found = []
    for name, spec in METRICS.items():
        amounts = [each[name] for each in at_load if name in each] or [each[name] for each in at_disk if name in each]
        if amounts:
            found.append(spec.value(sum(amounts) / sum(each or 0 for each in counted)))
    return found
