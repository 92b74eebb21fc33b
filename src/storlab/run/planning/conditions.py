"""Under what each trial was measured, setting by setting, and what of it the study declares alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from storlab.analysis.unequal import KERNEL, Place, Seen
from storlab.layers.block.queue_files import QUEUE
from storlab.records.run_folder import TrialRecord
from storlab.registry import layer_types
from storlab.study.cells import HOST, Cell
from storlab.study.chains import Chain
from storlab.study.layout import Unit, key_of
from storlab.workloads.command import CommandWorkload

_NOT_HOW = {"keep", "once"}
_SHAPES = ("network", "tcp", "limits")  # facts of no layer


def seen_in(records: Iterable[TrialRecord], cells: Mapping[int, Cell]) -> Seen:
    """What all trials that are done were measured under."""
    seen, declared = Seen(), {number: _declared(cell) for number, cell in cells.items()}
    for record in records:
        if record.status == "done" and record.cell in cells:
            _add(seen, record, cells[record.cell], declared[record.cell])
    return seen


def _add(
    seen: Seen, record: TrialRecord, cell: Cell, declared: Mapping[tuple[str, str], list[tuple[str, str]]]
) -> None:
    for node, layers in record.facts.items():
        chains: dict[str, list[dict[str, Any]]] = {}
        for layer in layers:
            if layer["layer"] not in _SHAPES:
                chains.setdefault(str(layer.get("chain", "")), []).append(layer)
        for chain, mine in chains.items():
            known = declared.get((node, chain), [])
            if [kind for kind, _ in known] != [layer["layer"] for layer in mine]:
                continue  # several chains of one place: which layer is which is not known
            place = Place(record.cell, record.trial, f"{node}, {chain}" if chain else node)
            for (kind, key), facts in zip(known, mine, strict=True):
                seen.add(key, kind, compared(kind, facts), place)
    groups = {name: group for group, name in cell.node_names()}
    for node, settings in record.settings.items():
        spec = _spec(cell, groups[node]) if node in groups else HOST
        place = Place(record.cell, record.trial, node)
        seen.add(key_of(spec, _commands(cell)), KERNEL, settings.items(), place)


def compared(kind: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of those facts of a layer that are the same wherever it is set up in the same way."""
    return ((name, text) for name, text in _flat("", facts) if _is_compared(kind, name))


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)


@cache
def _is_compared(kind: str, name: str) -> bool:
    if name.rpartition(".")[2] in QUEUE:
        return True
    layer = layer_types().get(kind)  # None: of a package that is not installed here
    own = name not in ("layer", "on", "chain")
    return layer is not None and own and any(fnmatchcase(name, pattern) for pattern in layer.compared)


def _declared(cell: Cell) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Of each chain on each node, as facts name it: the kind of each layer there, and what is the same for all that are
    declared like it, with all that it stands on.

    Several chains of one place are left out: which layer is which is not known.
    """
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    chains: dict[tuple[str, str], Chain | None] = {}
    several = set()
    for unit in (unit for unit in cell.units if unit.links):
        place, below = (unit.facts_of, unit.suffix), _how(cell, replace(unit, links=()))
        dumps = _dumps(unit)
        rows = [(layer.layer, key_of(below, dumps[:at], _commands(cell))) for at, layer in enumerate(unit.layers, 1)]
        found.setdefault(place, []).extend(rows)
        if chains.setdefault(place, unit.chain) is not unit.chain:
            several.add(place)
    return {place: rows for place, rows in found.items() if place not in several}


def _how(cell: Cell, unit: Unit) -> list[Any]:
    """How a unit's layers are declared, with all that they stand on or take, whatever their nodes are called."""
    below = [] if unit.below is None else _how(cell, unit.below)
    if unit.chain is not None and (unit.below is None or unit.below.chain is not unit.chain):
        below += [_spec(cell, name) if name in cell.nodes else HOST for name in (unit.chain.source, unit.chain.group)]
    further = [_how(cell, top) for tops in unit.further.values() for top in tops]
    return [*below, *([further] if further else []), *_dumps(unit)]


def _dumps(unit: Unit) -> list[Any]:
    return [layer.model_dump(mode="json", exclude=_NOT_HOW) for layer in unit.layers]


def _spec(cell: Cell, group: str) -> list[Any]:
    node = cell.nodes[group]
    shapes = [each.model_dump(mode="json") if each is not None else None for each in (node.tcp, cell.network)]
    return [node.spec().model_dump(mode="json"), *shapes, node.settings]


def _commands(cell: Cell) -> list[Any]:
    """What a study does beyond its stacks, and may change any of them by."""
    first = cell.precondition
    more = first.model_dump(mode="json") if isinstance(first, CommandWorkload) else None
    return [cell.trial.prepare, more]
