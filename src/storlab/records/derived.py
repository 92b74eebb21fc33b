"""Metrics and rows that no single file of a trial holds: what follows from several of its parts together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Literal

import polars as pl

from storlab.base.text import grouped
from storlab.findings.runs import InMemory, SettingsChanged
from storlab.measurements import Measurements
from storlab.metrics import STORAGE, TARGET, Better, Domain, MetricSpec, Quantity, Value, specs_of
from storlab.records.run_folder import ChangedSetting, TrialRecord

# Bytes that disks moved for each byte that loads moved: counts, which noise hardly touches.

SOURCE = STORAGE
"""The ``source`` of these metrics: they belong to no workload and no probe alone."""

_WAYS: dict[Quantity, str] = {"bytes written": "write", "bytes read": "read"}
_AT_DISK, _BACKING, _GUEST_DISK = "amplification", "amplification.backing", "amplification.guest-disk"
_MOVED = {"write": "bytes written to the disk", "read": "bytes read from the disk"}
METRICS = {
    (way, what): MetricSpec(
        f"{way}.{what}", "1", "lower", "none", per=per, noun=f"{_MOVED[way]} for each byte of the load"
    )
    for what in (_AT_DISK, _BACKING, _GUEST_DISK)
    for per, way in _WAYS.items()
}


def declares(asked: Set[Quantity], *, at_disk: bool, underlying: bool) -> tuple[MetricSpec, ...]:
    """What there may be where this is asked for: ``at_disk``, where that is watched; ``underlying``, at other nodes."""
    known = {_AT_DISK: at_disk, _BACKING: underlying, _GUEST_DISK: underlying}
    return tuple(s for (_, what), s in METRICS.items() if known[what] and (what == _GUEST_DISK or s.per in asked))


Moved = Counter[tuple[str, str]]
"""Way and whose: what was ``asked`` for, and what was moved at the ``disk``."""


def bytes_of(measured: Measurements, subject: str = "") -> Counter[str]:
    """Bytes of all jobs together, ``write``, ``read`` and of no known way; of a probe, those of a ``subject``."""
    specs, found = specs_of(measured.declared), Counter[str]()
    for name, value in measured.totals().items():
        spec = specs.find(name)
        if spec.quantity in ("bytes", *_WAYS) and spec.subject == subject:
            found[_WAYS.get(spec.quantity, "")] += int(value)
    return found


def moved_bytes(loads: Iterable[Measurements], host_load: Measurements) -> Moved:
    """Bytes that workloads asked for, and those at the disks under them.

    Directions in which either is unknown are left out; both, where one of several workloads does not say.
    """
    at_disk, asked = bytes_of(host_load, TARGET), asked_bytes(loads) or Counter[str]()
    known = [way for way in _WAYS.values() if asked[way] and way in at_disk]
    return Moved({(way, whose): of[way] for whose, of in (("asked", asked), ("disk", at_disk)) for way in known})


def amplification(moved: Moved) -> list[Value]:
    """``write.amplification`` and ``read.amplification``, of one node or of several together.

    Bytes at the disk ÷ bytes of the workloads. Below 1: the page cache answered, or held back what did not reach the
    disk within the measured phase.
    """
    return [
        METRICS[way, _AT_DISK].value(moved[way, "disk"] / moved[way, "asked"])
        for way in _WAYS.values()
        if moved[way, "asked"]
    ]


def asked_bytes(loads: Iterable[Measurements]) -> Counter[str] | None:
    """Bytes that workloads moved, ``write`` and ``read``; ``None`` where one of them does not say."""
    each = [bytes_of(load) for load in loads]
    return sum(each, Counter[str]()) if all(each) else None


def disk_bytes(host_load: Measurements) -> Counter[str] | None:
    """Bytes moved at a machine's disks under test; ``None`` where ``host-load`` has not seen them."""
    found = bytes_of(host_load, TARGET)
    return found if len(found) == len(_WAYS) else None


def backing_amplification(
    backing: Counter[str], asked: Counter[str] | None, at_guests: Counter[str] | None
) -> list[Value]:
    """Bytes written to, and read from, disks below those of other nodes, for each byte above.

    ``backing`` are those that the probe ``backing`` counted; ``asked`` and ``at_guests`` are of all the nodes above. A
    ratio to what is unknown or 0 is left out.
    """
    return [
        METRICS[way, what].value(backing[way] / above[way])
        for way in _WAYS.values()
        for what, above in ((_BACKING, asked), (_GUEST_DISK, at_guests))
        if above is not None and above[way]
    ]


# What each transaction of a database cost: counts, which tell set-ups apart where rates are too noisy.
#
# Mark Callaghan judges regressions of databases by these, see http://smalldatum.blogspot.com.

TRANSACTIONS = "transactions"
"""The metric by which a load counts them."""

_NOUNS = {
    "bytes_written": ("B", f"disk.{TARGET}.bytes_written", "written to the disk for each transaction"),
    "flushes": ("1", f"disk.{TARGET}.flushes", "flushes of the disk for each transaction"),
    "cpu.time": ("s", "cpu.busy.time", "of CPU time for each transaction"),
    "context_switches": ("1", "context_switches", "context switches for each transaction"),
}
PER_TRANSACTION: Mapping[str, MetricSpec] = {
    counted: MetricSpec(f"{name}.per-transaction", unit, "lower", "none", noun=noun, evidence="none")
    for name, (unit, counted, noun) in _NOUNS.items()
}
"""What ``host-load`` counts → the same for each transaction; CPU and switches are of the machine with the clients."""


def per_transaction_metrics(loads: Iterable[Iterable[MetricSpec]]) -> tuple[MetricSpec, ...]:
    each = [any(spec.name == TRANSACTIONS for spec in specs) for specs in loads]
    return tuple(PER_TRANSACTION.values()) if each and all(each) else ()


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
    for name, spec in PER_TRANSACTION.items():
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


# How fairly nodes, and jobs, share what they have together: Jain's index, and the largest share by the smallest.
#
# R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared
# computer systems", DEC Research Report TR-301, 1984.

JOBS = "jobs."
"""How the statistics begin that are of jobs, and not of nodes."""


@cache
def fairness_of(throughput: str) -> tuple[MetricSpec, ...]:
    """Fairness and imbalance of the nodes' shares in a throughput, and of the jobs'."""
    each: tuple[tuple[str, Better, Domain], ...] = (("fairness", "higher", "share"), ("imbalance", "lower", ""))
    return tuple(
        MetricSpec(f"{throughput}.{name}", "1", better, "none", of=throughput, statistic=name, domain=domain)
        for among in ("", JOBS)
        for of, better, domain in each
        for name in (f"{among}{of}",)
    )


def jain(values: Sequence[float]) -> float | None:
    """(Σx)² ÷ (n·Σx²): 1 where all are equal, 1/n where one has everything; ``None`` where nothing is shared."""
    most = max(values, default=0.0)
    if not math.isfinite(most) or most <= 0 or not all(value >= 0 for value in values):
        return None
    shares = [value / most for value in values]  # squares of huge and of tiny values would leave the floats' range
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def imbalance(values: Sequence[float]) -> float | None:
    """The largest ÷ the smallest: 1 where all are equal; ``None`` where one has nothing, or nothing is shared."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    ratio = most / least if least > 0 else math.inf
    return ratio if math.isfinite(ratio) else None


def fairness(metric: str, values: Sequence[float], among: str = "") -> Iterator[Value]:
    """The fairness and the imbalance of the ``values`` of nodes, or ``among`` others: ``JOBS``."""
    fair, unequal = fairness_of(metric)[2 if among else 0 :][:2]
    index, ratio = jain(values), imbalance(values)
    if index is not None:
        yield fair.value(index)
    if ratio is not None:
        yield unequal.value(ratio)


def of_jobs(
    metrics: pl.DataFrame, throughputs: Collection[str], by: Sequence[str] = ()
) -> Iterator[tuple[tuple[object, ...], Value]]:
    """The fairness among jobs, for each group of ``by``, of the ``throughputs`` that every one of several jobs has.

    ``metrics``: ``METRIC_COLUMNS``, ``node`` and those of ``by``. A job of several nodes counts on each.
    """
    jobs = metrics.filter(pl.col("job").is_not_null())
    if jobs.is_empty() or (not by and jobs.select("node", "job").n_unique() == 1):
        return
    takers = jobs.group_by(*by, pl.lit(0)).agg(takers=pl.struct("node", "job").n_unique()).drop("literal")
    own = jobs.filter(pl.col("metric").is_in(list(throughputs)))
    shared = own.group_by(*by, "metric", maintain_order=True).agg("value")
    joined = shared.join(takers, on=list(by), maintain_order="left") if by else shared.join(takers, how="cross")
    for *group, metric, values, many in joined.iter_rows():
        if many > 1 and len(values) == many:
            yield from ((tuple(group), value) for value in fairness(metric, values, JOBS))


# Whether loads measured the disk or memory: whose bytes mostly stayed in a cache.

_LEAST: dict[Literal["write", "read"], float] = {"write": 0.5, "read": 0.1}
"""Bytes at the disk for each byte of the loads; what was cached before is read again, so little tells nothing there."""
_MOST = 3  # cells that are named


def in_memory(metrics: pl.DataFrame, levels: Mapping[int, Mapping[str, str]]) -> Iterator[InMemory]:
    """One for writes and one for reads. ``metrics``: the table of that name; ``levels``: by cell."""
    own = metrics.filter(pl.col("node").is_null(), source=SOURCE)
    for way, least in _LEAST.items():
        spec = METRICS[way, "amplification"]
        cells = own.filter(metric=spec.name).group_by("cell").agg(pl.col("value").median()).sort("cell")
        found = cells.filter(pl.col("value") < least)
        if found.height:
            few = found.height < cells.height and found.height <= _MOST
            each = (levels.get(cell, {}).items() for cell in found["cell"])
            named = tuple(", ".join(f"{name}={level}" for name, level in of) for of in each) if few else ()
            shares = min(found["value"]), max(found["value"])
            yield InMemory(way, *shares, named, found.height, cells.height)


# What trials changed of the settings of disks' queues and of kernels, and whether it is as before.


def changed_settings(records: Iterable[TrialRecord]) -> Iterator[SettingsChanged]:
    """For each cell, one for all that the same trials changed, and that ended alike."""
    changes = ((record, each) for record in records for each in record.changed)
    for (levels, ended), those in grouped(((_levels(r), _ended(each)), (r.trial, each)) for r, each in changes).items():
        by_name = grouped((each.name, (trial, each)) for trial, each in those)
        alike = grouped((tuple(dict.fromkeys(trial for trial, _ in of)), _setting(of)) for of in by_name.values())
        for trials, changed in alike.items():
            yield SettingsChanged(levels, len(trials), tuple(changed), ended)


def _levels(record: TrialRecord) -> str:
    return ", ".join(f"{factor}={level}" for factor, level in record.levels.items()) or "all trials"


def _setting(changes: Sequence[tuple[int, ChangedSetting]]) -> tuple[str, str, str, bool]:
    first, *others = dict.fromkeys((each.before or "nothing", each.after or "nothing") for _, each in changes)
    return changes[0][1].name, *first, not others


def _ended(change: ChangedSetting) -> Literal["put back", "left", "stuck"]:
    if change.now == change.before:
        return "put back"
    return "left" if change.now == change.after else "stuck"
