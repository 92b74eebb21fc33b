"""Which metrics the trials of a cell may have, and which of those that are asked for they can't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from storlab.analysis.questions import Metrics, Trait
from storlab.metrics import PROBE, Declarations, MetricSpec, named, without_end
from storlab.probes.disks import BACKING
from storlab.probes.host_load import HostLoadProbe
from storlab.records.derive_trial import NODES, START_SKEW
from storlab.records.derived import SOURCE, declares, per_transaction_metrics
from storlab.records.tables import derived
from storlab.study.cells import Cell

_Yielded = tuple[str, tuple[MetricSpec, ...]]


def metrics_of(cell: Cell) -> Declarations:
    """All metrics that a trial of this cell may have, by source; where that depends on the machine, those too."""
    nodes = {load.name: sum(cell.nodes[group].count for group in load.groups) for load in cell.yielding}
    skew = sum(nodes[load.name] for load in cell.loads) > 1
    loads = tuple((load.name, load.declares()) for load in cell.yielding)
    probes = tuple((PROBE + name, probe.declares()) for name, probe in cell.probes.items())
    measures_all = all(load.workload.measures_all(cell.trial.warm_up) for load in cell.loads)
    crosses = any(chain.crossing is not None for chain in cell.chains)
    amplified = measures_all and HostLoadProbe.kind in cell.probes
    return _together(loads, tuple(nodes.values()), probes, amplified, crosses, skew)


@lru_cache(1024)
def _together(
    loads: tuple[_Yielded, ...],
    nodes: tuple[int, ...],
    probes: tuple[_Yielded, ...],
    amplified: bool,
    crosses: bool,
    skew: bool,
) -> Declarations:
    asked = {spec.quantity for _, specs in loads for spec in specs}
    shared = ((name, (*specs, *derived(specs, count))) for (name, specs), count in zip(loads, nodes, strict=True))
    costs = per_transaction_metrics(specs for _, specs in loads) if amplified else ()
    storage = (
        (SOURCE, (*declares(asked, at_disk=amplified, underlying=False), *costs)),
        (BACKING.kind, (*BACKING.metrics, *declares(asked, at_disk=False, underlying=True)) if crosses else ()),
    )
    return Declarations.union([*shared, *probes, *storage, (NODES, (START_SKEW,) if skew else ())])


def meant(wanted: str, known: Declarations) -> Metrics:
    """What it names, or may name: a member of a family is known only once a trial has run, and so is its end."""
    found = {(source, spec.name): spec for source, specs in known.items() for spec in specs.numbers()}
    source, _, name = wanted.rpartition(":")
    source = without_end(source)
    keys = named(f"{source}:{name}" if source else name, found) or [
        key for key, spec in found.items() if source in ("", key[0]) and spec.word and spec.named(name)
    ]
    return {key: Trait.of(found[key], found[key].unit, found[key].better) for key in keys}


def silent(cells: Iterable[Cell], names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Cells, by number, whose trials have nothing that a name means, although those of another cell may."""
    known = {cell.number: metrics_of(cell) for cell in cells}
    for name in names:
        found = {id(each): bool(meant(name, each)) for each in known.values()}
        if any(found.values()):
            yield from ((number, name) for number, each in known.items() if not found[id(each)])
