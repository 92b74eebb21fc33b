"""What each transaction of a database cost: counts, which tell set-ups apart where rates are too noisy.

Mark Callaghan judges regressions of databases by these, see http://smalldatum.blogspot.com.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

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
    each = [any(spec.name == TRANSACTIONS for spec in specs) for specs in loads]
    return tuple(METRICS.values()) if each and all(each) else ()


def per_transaction(
    loads: Iterable[Measurements],
    seen: Iterable[Measurements],
    below: Mapping[str, Measurements],
    above: Mapping[str, Set[str]],
) -> list[Value]:
    """Of all nodes together; none where a load counts no transactions.

    ``seen``: by ``host-load`` where the loads ran; ``below``: on the underlying nodes, of which the nearest have the
    disks under test where the former have none. ``above``: which of ``below`` stand on each of them.
    """
    counted = [each.totals().get(TRANSACTIONS) for each in loads]
    if not counted or not all(counted):
        return []
    at_load, at_disk = [each.totals() for each in seen], {node: each.totals() for node, each in below.items()}
    found = []
    for name, spec in METRICS.items():
        amounts = [each[name] for each in at_load if name in each] or _nearest(
            {node: each[name] for node, each in at_disk.items() if name in each}, above
        )
        if amounts:
            found.append(spec.value(sum(amounts) / sum(each or 0 for each in counted)))
    return found


def _nearest(amounts: Mapping[str, float], above: Mapping[str, Set[str]]) -> list[float]:
    return [amount for node, amount in amounts.items() if above[node].isdisjoint(amounts)]


def watched_above(standing: Mapping[str, Iterable[str]], machine: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of these watched nodes stand on each: those on whose machine one of the nodes is that are ``standing`` on
    it. ``machine``: that of each node.
    """
    upper = {node: {machine[name] for name in names if name in machine} for node, names in standing.items()}
    return {node: {other for other in standing if other != node and machine[other] in upper[node]} for node in standing}
