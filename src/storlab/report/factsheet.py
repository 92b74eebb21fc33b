"""Facts (nested dicts as tools report them) as lines of name and text, for a definition list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec import to_builtins

from storlab.analysis.summary import CellState
from storlab.records.manifest import Manifest
from storlab.report import format as fmt
from storlab.report.input import Facts, ReportInput
from storlab.report.tables import together
from storlab.report.words import compact

_BYTES = frozenset({"memory", "size"})


@dataclass(frozen=True)
class Fact:
    """One fact. ``block``: several lines, to be shown as a tool printed them."""

    name: str
    text: str
    block: bool = False


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


@dataclass(frozen=True)
class Sheet:
    """Facts of all things that share them: ``name`` lists these. ``parts`` are (name, facts)."""

    name: str
    parts: tuple[tuple[str, tuple[Fact, ...]], ...]


def node_sheets(manifest: Manifest | None) -> list[Sheet]:
    """One sheet for all nodes that are alike."""
    nodes = to_builtins(manifest.nodes) if manifest else {}
    groups = alike(((("", tuple(facts_of(facts))),), name) for name, facts in nodes.items())
    return [Sheet(f"{'Node' if len(names) == 1 else 'Nodes'} {compact(names)}", parts) for parts, names in groups]


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
    groups = alike((tuple(facts_of(layers[layer])), node) for node, layers in nodes.items() if layer in layers)
    return [(layer if len(nodes) == 1 else f"{layer} of {compact(names)}", facts) for facts, names in groups]


K = TypeVar("K")
V = TypeVar("V")


def alike(items: Iterable[tuple[K, V]]) -> list[tuple[K, list[V]]]:
    """Each key once, in the order of their first mention, with all that have it."""
    groups: dict[K, list[V]] = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return list(groups.items())
