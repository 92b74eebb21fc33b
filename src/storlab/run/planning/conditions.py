"""Under what each trial was measured, setting by setting, and what of it the study declares alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import orjson

from storlab.analysis.unequal import KERNEL, Place, Seen
from storlab.layers.block.queue_files import QUEUE
from storlab.records.run_folder import TrialRecord
from storlab.registry import layer_types
from storlab.study.cells import HOST, MAIN, Cell, node_names
from storlab.study.chains import Chain
from storlab.workloads.command import CommandWorkload

_NOT_HOW = {"keep", "once"}
_SHAPES = ("network", "tcp")  # facts of no layer


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
        seen.add(_key(spec, _commands(cell)), KERNEL, settings.items(), place)


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
    """
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for chain in cell.chains:
        spec, below = _spec(cell, chain.group), _below(cell, chain)
        kinds = [link.layer.layer for link in chain.links]
        dumps = [link.layer.model_dump(mode="json", exclude=_NOT_HOW) for link in chain.links]
        keys = [_key(spec, below, dumps[: at + 1], _commands(cell)) for at in range(len(dumps))]
        rows = list(zip(kinds, keys, strict=True))
        for node in node_names(chain.group, cell.nodes[chain.group]):
            for number in range(chain.count):
                suffix = "" if chain.name == MAIN else chain.name if chain.count == 1 else f"{chain.name}-{number + 1}"
                found[node, suffix] = rows[chain.shared :]
        source = node_names(chain.source, cell.nodes[chain.source])[0] if chain.source in cell.nodes else HOST
        if chain.shared:
            found[source, chain.group] = rows[: chain.shared]
    return found


def _below(cell: Cell, chain: Chain) -> list[Any]:
    """All that a chain stands on, or takes in addition."""
    others = [cell.chain(chain.stands_on(link), name) for link in chain.links for name in link.layer.chains()]
    base = cell.continued(chain)
    source = _spec(cell, chain.source) if chain.source in cell.nodes else HOST
    stands_on = [each for each in (base, *others) if each is not None and each is not chain]
    return [source, *([_spec(cell, each.group), _layers(each), _below(cell, each)] for each in stands_on)]


def _layers(chain: Chain) -> list[Any]:
    return [link.layer.model_dump(mode="json", exclude=_NOT_HOW) for link in chain.links]


def _spec(cell: Cell, group: str) -> list[Any]:
    node = cell.nodes[group]
    shapes = [each.model_dump(mode="json") if each is not None else None for each in (node.tcp, cell.network)]
    return [node.spec().model_dump(mode="json"), *shapes]


def _commands(cell: Cell) -> list[Any]:
    """What a study does beyond its stacks, and may change any of them by."""
    first = cell.precondition
    more = first.model_dump(mode="json") if isinstance(first, CommandWorkload) else None
    return [cell.trial.prepare, more]


def _key(*parts: Any) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
