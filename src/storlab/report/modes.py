"""Sync, flush and cache modes of every disk in one table: the usual hidden cause of a difference between set-ups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from storlab.report.factsheet import Fact, alike, facts_of
from storlab.report.input import Facts, ReportInput
from storlab.report.tables import ALL_CELLS, Notes, Table, together
from storlab.report.words import UNSAFE, compact

_MODES = frozenset(
    {"sync", "logbias", "primarycache", "secondarycache", "cache", "aio", "direct_io", "write_cache", "fua", "flush"}
    | {"no_flush", "zfs_nocacheflush", "zil_nocacheflush"}
)
_MOUNT_OPTION = re.compile(r"(no)?barrier(=.*)?|sync|dirsync|dax(=.*)?|data=.*|discard(=.*)?|nodiscard")
_UNSAFE = re.compile(
    r"(.*\.)?(sync=disabled|cache=unsafe|no_flush=(yes|1)|z(fs|il)_nocacheflush=(yes|1)|nobarrier|barrier=0)"
)


@dataclass(frozen=True)
class _Layer:
    """One layer of a disk as the table shows it."""

    name: str
    modes: tuple[str, ...]


def modes_table(given: ReportInput) -> Table | None:
    """A row for each way in which a layer was set up, and the cells where it was; ``None`` where none has modes."""
    found = ((layer, (cell, node)) for cell in given.facts for node, layers in _disks(given, cell) for layer in layers)
    everyone = {node for nodes in given.facts.values() for node in nodes}
    notes, ways = Notes(), dict[str, list[tuple[str, ...]]]()
    for layer, places in alike(found):
        nodes = list(dict.fromkeys(node for _, node in places))
        text = notes.mark(", ".join(layer.modes), [UNSAFE] if _unsafe(layer) else [])
        of = "all nodes" if set(nodes) == everyone else compact(nodes)
        ways.setdefault(layer.name, []).append((layer.name, of, _cells(given, [cell for cell, _ in places]), text))
    rows = [row for same_layer in ways.values() for row in same_layer]
    if not rows:
        return None
    telling = {"disks of": "all nodes", "where": ALL_CELLS}
    columns = ("layer", "disks of", "where", "modes")
    kept = [i for i, name in enumerate(columns) if any(row[i] != telling.get(name) for row in rows)]
    drawn = tuple(tuple(row[i] for i in kept) for row in rows)
    shown = tuple(columns[i] for i in kept)
    return Table("Sync and cache modes", shown, drawn, len(kept) - 1, "", notes.sentences())


def _cells(given: ReportInput, cells: Iterable[int]) -> str:
    """What to call them among the cells of which something is known."""
    mine, known = set(cells), [state for state in given.summary.cells if state.cell in given.facts]
    own = [state for state in known if state.cell in mine]
    return ALL_CELLS if own == known else together(own, known)


def unsafe_modes(given: ReportInput) -> list[str]:
    """A sentence for each mode that answers a flush before the data are safe."""
    found = (
        (f"{layer.name} has {', '.join(mode for mode in layer.modes if _UNSAFE.fullmatch(mode))}", cell)
        for cell in given.facts
        for _, layers in _disks(given, cell)
        for layer in filter(_unsafe, layers)
    )
    return [f"{where}: {what}. {UNSAFE}" for what, cells in alike(found) if (where := _cells(given, cells))]


def _disks(given: ReportInput, cell: int) -> Iterator[tuple[str, list[_Layer]]]:
    """Each node's layers that have modes."""
    known = given.manifest.nodes if given.manifest else {}
    places = {"host", *known, *(node for nodes in given.facts.values() for node in nodes)}
    for node, layers in given.facts[cell].items():
        yield node, list(_layers(layers, places))


def _layers(layers: Mapping[str, Facts], places: set[str]) -> Iterator[_Layer]:
    for name, facts in layers.items():
        modes = tuple(mode for fact in facts_of(facts) for mode in _modes(fact))
        if modes:
            place = facts.get("on")
            name = name.partition(". ")[2] or name  # without its position in the stack
            yield _Layer(f"{name} on {place}" if place in places else name, modes)


def _modes(fact: Fact) -> Iterator[str]:
    last = fact.name.rpartition(".")[2]
    if last == "no_flush" and fact.text == "no":
        return  # as it should be
    if last in _MODES and not fact.block:
        yield f"{fact.name}={fact.text}"
    elif last == "options":
        yield from (word for word in re.split(r",\s*", fact.text) if _MOUNT_OPTION.fullmatch(word))


def _unsafe(layer: _Layer) -> bool:
    return any(_UNSAFE.fullmatch(mode) for mode in layer.modes)
