"""What nodes, stacks and guests were, as facts and tables; and sync, flush and cache modes of every disk in one table:
the usual hidden cause of a difference between set-ups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from storlab.analysis.summary import CellState, Summary
from storlab.base.text import grouped
from storlab.records.manifest import Manifest
from storlab.report.document import Fact, Table
from storlab.report.document import Facts as Sheet
from storlab.report.language import format as fmt
from storlab.report.language.words import UNSAFE, compact
from storlab.report.model.input import Facts, ReportInput
from storlab.report.model.tables import ALL_CELLS, among, noted, together

_BYTES = frozenset({"memory", "size"})


def facts_of(facts: object) -> list[Fact]:
    """Every leaf of ``facts``, named by its path: ``tools.fio``."""
    return list(_walk("", facts))


def _walk(path: str, value: object) -> Iterator[Fact]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _walk(f"{path}.{name}" if path else str(name), part)
    else:
        text = _text(path.rsplit(".", 1)[-1], value)
        yield Fact(path, text, "\n" in text.strip())


def _text(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name in _BYTES:
        return f"{fmt.quantity(float(value), 'B')} ({value} B)"
    if isinstance(value, list | tuple):
        return ", ".join(_text("", part) for part in value) if value else "none"
    return str(value)


def node_sheets(manifest: Manifest | None) -> list[Sheet]:
    """One sheet for all nodes that are alike."""
    nodes = to_builtins(manifest.nodes) if manifest else {}
    groups = grouped(((("", tuple(facts_of(facts))),), name) for name, facts in nodes.items())
    return [
        Sheet(f"{'Node' if len(names) == 1 else 'Nodes'} {compact(names)}", parts) for parts, names in groups.items()
    ]


def stack_sheets(given: ReportInput) -> list[Sheet]:
    """One sheet for all cells whose stacks are alike, layer by layer; nodes that are alike share a part."""
    states = {cell.cell: cell for cell in given.summary.cells}
    stacks: dict[tuple[tuple[str, tuple[Fact, ...]], ...], list[CellState]] = {}
    for cell, nodes in given.facts.items():
        layers = dict.fromkeys(layer for facts in nodes.values() for layer in facts)
        parts = tuple(part for layer in layers for part in _layer_parts(layer, nodes))
        stacks.setdefault(parts, []).append(states.get(cell, CellState(cell, {}, "measured", 0)))
    what = "Facts" if given.manifest and given.manifest.imported else "Stack"
    return [Sheet(f"{what} of {together(cells, given.summary.cells)}", parts) for parts, cells in stacks.items()]


def _layer_parts(layer: str, nodes: Mapping[str, Mapping[str, Facts]]) -> list[tuple[str, tuple[Fact, ...]]]:
    groups = grouped((_own_facts(layers[layer]), node) for node, layers in nodes.items() if layer in layers)
    return [(layer if len(nodes) == 1 else f"{layer} of {compact(names)}", facts) for facts, names in groups.items()]


LoadFact = tuple[str, str, list[int]]
"""Name, text, and the cells where it is so."""


def load_facts(summary: Summary) -> dict[str, list[LoadFact]]:
    """By load, what its program said of itself and of what it did; values of one fact together."""
    entries: list[Mapping[str, Any]] = list(summary.facts.get("loads") or ())  # type: ignore[call-overload]
    loads: dict[str, list[LoadFact]] = {}
    for load, own in grouped((str(entry["load"]), entry) for entry in entries).items():
        facts = [{name: fact for name, fact in entry.items() if name not in ("load", "cells")} for entry in own]
        names = dict.fromkeys(name for each in facts for name in each)
        texts = (
            (name, each[name], of["cells"])
            for name in names
            for each, of in zip(facts, own, strict=True)
            if name in each
        )
        places = grouped(((name, _text(name, fact)), cells) for name, fact, cells in texts)
        loads[load] = [(*of, [cell for cells in where for cell in cells]) for of, where in places.items()]
    return loads


def load_tables(summary: Summary) -> list[Table]:
    """A fact of a load a line, and where that is so unless it is everywhere."""
    known = [state for state in summary.cells if state.rounds]
    tables = []
    for load, facts in load_facts(summary).items():
        rows = tuple((name, among(cells, known), text) for name, text, cells in facts)
        everywhere = all(where == ALL_CELLS for _, where, _ in rows)
        table = Table(f"Load: {load}", ("fact", "where", "value"), rows, 2 if everywhere else 3)
        tables.append(table.of_columns((0, 2)) if everywhere else table)
    return tables


def _own_facts(layer: Facts) -> tuple[Fact, ...]:
    """Without properties that have a source, which have a table."""
    apart = ("properties", "sources") if "sources" in layer else ()
    return tuple(facts_of({name: value for name, value in layer.items() if name not in apart}))


_SHOWN = ("accelerator", "machine", "cpu", "cpus", "memory", "qemu", "kernel", "image", "boot", "pinning")
"""What is shown of a guest, in this order; whatever else is known of it follows."""
_LONG = 24
"""Letters of a fact of guests from which on it has a line of its own."""
_HEADINGS = {"cpu": "CPU model", "cpus": "CPUs", "qemu": "QEMU"}

_APART = frozenset({"disk", "boot_seconds", "boot_id"})
"""The disk is in the table of its modes, the others are never alike."""

Row = tuple[tuple[str, str], ...]
Group = tuple[dict[str, str], list[tuple[int, str]]]
"""What guests that are alike are, and where they are: cell and node."""


def guests_tables(given: ReportInput) -> list[Table]:
    """What all guests share, a fact a line, for some are long; then a row for all that were alike, if not all were."""
    found = [(_row(facts), (cell, node)) for cell, nodes in given.guests.items() for node, facts in nodes.items()]
    groups = [(dict(row), places) for row, places in grouped(found).items()]
    if not groups:
        return []
    names = list(dict.fromkeys([*_SHOWN, *(name for row, _ in groups for name in row)]))
    values = {name: [row.get(name, "") for row, _ in groups] for name in names}
    shared = [(_HEADINGS.get(name, name), of[0]) for name, of in values.items() if of[0] and len(set(of)) == 1]
    if len(groups) == 1:
        shared.append(("boot time", _boot_times(given, groups[0][1])))
    everyone = compact(list(dict.fromkeys(node for _, places in groups for _, node in places)))
    facts = tuple((name, text) for name, text in shared if text)
    tables = [Table(f"Guests: {everyone}", ("fact", "value"), facts, 2)] if facts else []
    return tables if len(groups) == 1 else [*tables, _differing(given, groups, values)]


def _differing(given: ReportInput, groups: Sequence[Group], values: Mapping[str, Sequence[str]]) -> Table:
    """A row for guests that were alike; where a fact is long, a row for each of their facts."""
    shown = {_HEADINGS.get(name, name): of for name, of in values.items() if len(set(of)) > 1}
    who = [(compact(list(dict.fromkeys(node for _, node in at))), _cells(given, at)) for _, at in groups]
    boots = [_boot_times(given, places) for _, places in groups]
    rows: list[tuple[str, ...]]
    if any(len(text) > _LONG for of in shown.values() for text in of):
        facts = [*shown.items(), ("boot time", boots)]
        rows = [(*names, name, of[at]) for at, names in enumerate(who) for name, of in facts if of[at]]
        columns: tuple[str, ...] = ("guests", "cells", "fact", "value")
    else:
        rows = [(*names, *(of[at] for of in shown.values()), boots[at]) for at, names in enumerate(who)]
        columns = ("guests", "cells", *shown, "boot time")
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return Table("What differs between guests", columns, tuple(rows), len(kept)).of_columns(kept)


def _row(facts: Facts) -> Row:
    """Name and text of every fact that can be alike; of nested facts each leaf."""
    kept = {name: value for name, value in facts.items() if name not in _APART}
    texts = {fact.name: fact.text for fact in facts_of(kept)}
    memory = facts.get("memory")
    if isinstance(memory, int | float) and not isinstance(memory, bool):
        texts["memory"] = fmt.quantity(float(memory), "B")
    return tuple(texts.items())


def _cells(given: ReportInput, places: Iterable[tuple[int, str]]) -> str:
    """Where this is only so in some of the cells in which these guests were: in which."""
    mine, nodes = {cell for cell, _ in places}, {node for _, node in places}
    having = {cell for cell, guests in given.guests.items() if nodes & guests.keys()}
    states = [state for state in given.summary.cells if state.cell in mine]
    return together(states, given.summary.cells) if mine != having and states else ""


def _boot_times(given: ReportInput, places: Iterable[tuple[int, str]]) -> str:
    times = [seconds for cell, node in places if (seconds := _seconds(given.guests[cell][node])) is not None]
    if not times:
        return ""
    low, high = fmt.duration(min(times)), fmt.duration(max(times))
    return low if low == high else f"{low} to {high}"


def _seconds(facts: Mapping[str, object]) -> float | None:
    seconds = facts.get("boot_seconds")
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


_MODES = frozenset(
    {"sync", "logbias", "primarycache", "secondarycache", "cache", "aio", "direct_io", "write_cache", "fua", "flush"}
    | {"no_flush", "zfs_nocacheflush", "zil_nocacheflush"}
)
_MOUNT_OPTION = re.compile(r"(no)?barrier(=.*)?|sync|dirsync|dax(=.*)?|data=.*|discard(=.*)?|nodiscard")
_USUAL = ("discard", "discard=async", "nodiscard")
"""Modes that say nothing about what is safe: where there are no others, there is no table."""
_UNSAFE = re.compile(
    r"(.*\.)?(sync=disabled|cache=unsafe|no_flush=(yes|1)|z(fs|il)_nocacheflush=(yes|1)|nobarrier|barrier=0)"
)


@dataclass(frozen=True)
class _Layer:
    name: str
    modes: tuple[str, ...]


def modes_table(given: ReportInput) -> Table | None:
    """A row for each way in which a layer was set up, and the cells where it was; ``None`` where none has modes."""
    found = ((layer, (cell, node)) for cell in given.facts for node, layers in _disks(given, cell) for layer in layers)
    everyone = {node for nodes in given.facts.values() for node in nodes}
    ways = dict[str, list[tuple[str, ...]]]()
    for layer, places in grouped(found).items():
        nodes = list(dict.fromkeys(node for _, node in places))
        text = noted(", ".join(layer.modes), [UNSAFE] if _unsafe(layer) else [])
        of = "all nodes" if set(nodes) == everyone else compact(nodes)
        ways.setdefault(layer.name, []).append((layer.name, of, _places(given, [cell for cell, _ in places]), text))
    rows = [row for same_layer in ways.values() for row in same_layer]
    if all(row[-1] in _USUAL for row in rows):
        return None
    telling = {"disks of": "all nodes", "where": ALL_CELLS}
    columns = ("layer", "disks of", "where", "modes")
    kept = [i for i, name in enumerate(columns) if any(row[i] != telling.get(name) for row in rows)]
    table = Table("Sync and cache modes", columns, tuple(rows), len(kept) - 1, "")
    return table.of_columns(kept)


def _places(given: ReportInput, cells: Iterable[int]) -> str:
    return among(cells, [state for state in given.summary.cells if state.cell in given.facts])


def unsafe_modes(given: ReportInput) -> list[str]:
    """A sentence for each mode that answers a flush before the data are safe."""
    found = (
        (f"{layer.name} has {', '.join(mode for mode in layer.modes if _UNSAFE.fullmatch(mode))}", cell)
        for cell in given.facts
        for _, layers in _disks(given, cell)
        for layer in filter(_unsafe, layers)
    )
    return [f"{where}: {what}. {UNSAFE}" for what, cells in grouped(found).items() if (where := _places(given, cells))]


def _disks(given: ReportInput, cell: int) -> Iterator[tuple[str, list[_Layer]]]:
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
    table, _, last = fact.name.rpartition(".")
    if table == "sources":
        return
    if last == "no_flush" and fact.text == "no":
        return  # as it should be
    if last in _MODES and not fact.block:
        yield f"{fact.name.removeprefix('properties.')}={fact.text}"
    elif last == "options":
        yield from (word for word in re.split(r",\s*", fact.text) if _MOUNT_OPTION.fullmatch(word))


def _unsafe(layer: _Layer) -> bool:
    return any(_UNSAFE.fullmatch(mode) for mode in layer.modes)


_RESERVED = frozenset({"quota", "refquota", "reservation", "refreservation"})
_SIZES = _RESERVED | frozenset(
    {"used", "available", "referenced", "volsize", "volblocksize", "recordsize", "written", "logicalused"}
    | {"logicalreferenced", "usedbysnapshots", "usedbydataset", "usedbychildren", "usedbyrefreservation"}
    | {"size", "allocated", "free", "freeing", "leaked", "checkpoint", "expandsize", "bcloneused", "bclonesaved"}
)
_RATIOS = frozenset({"compressratio", "refcompressratio", "dedupratio", "bcloneratio"})

Seen = dict[str, list[tuple[tuple[str, str], int]]]
"""Property → value and source, and the cell where they were so."""


def property_tables(given: ReportInput) -> list[Table]:
    """One for each kind of layer that has properties; settings that differ among cells have a row for each value."""
    found: dict[str, Seen] = {}
    for cell, nodes in given.facts.items():
        for layer, facts in (each for layers in nodes.values() for each in layers.items()):
            properties, sources = facts.get("properties"), facts.get("sources")
            if isinstance(properties, Mapping) and isinstance(sources, Mapping):
                seen = found.setdefault(layer.partition(". ")[2] or layer, {})
                for name, source in sources.items():
                    if not name.startswith("feature@"):  # of pools: always on
                        each = shown(name, properties.get(name)), str(source)
                        seen.setdefault(name, []).append((each, cell))
    return [_table(layer, seen, given) for layer, seen in found.items()]


def _table(layer: str, seen: Seen, given: ReportInput) -> Table:
    here = {cell for places in seen.values() for _, cell in places}
    states = [state for state in given.summary.cells if state.cell in here]
    rows = tuple((name, *row) for name, places in seen.items() for row in _rows(name, places, states))
    columns = ("property", "value", "source", "where")
    kept = 4 if any(row[-1] != ALL_CELLS for row in rows) else 3
    return Table(f"Properties of each {layer}", columns, rows, kept).of_columns(range(kept))


def _rows(
    name: str, places: Sequence[tuple[tuple[str, str], int]], states: Sequence[CellState]
) -> Iterator[tuple[str, str, str]]:
    """Value, source, where. What nobody sets, such as space in use, differs among volumes: one of them is shown."""
    values = grouped(places)
    (text, source), others = next(iter(values)), len(values) - 1
    if name != "volblocksize" and {source for _, source in values} == {"-"}:
        yield f"{text} (and {others} other{'s' * (others > 1)})" if others else text, source, ALL_CELLS
    else:
        yield from ((text, source, among(cells, states)) for (text, source), cells in values.items())


def shown(name: str, value: object) -> str:
    """A value that ``zfs get -p`` printed, as it is without ``-p``."""
    if name == "creation" and isinstance(value, int) and 0 <= value < 1 << 33:
        return f"{datetime.fromtimestamp(value, UTC):%a %b %e %H:%M %Y}"
    if name in _RATIOS:
        return f"{value}x"
    if name in _SIZES and isinstance(value, int):
        return "none" if name in _RESERVED and not value else _size(value)
    return "-" if value is None else str(value)


def _size(value: float) -> str:
    unit = next((at for at in range(5) if value < 1024 ** (at + 1)), 5)
    value /= 1024**unit
    digits = 0 if value == int(value) or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}{'BKMGTP'[unit]}"
