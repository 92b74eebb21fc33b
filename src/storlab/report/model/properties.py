"""Properties of pools, volumes and datasets with their sources, in the words of ``zfs get``: zfs-get(8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from storlab.analysis.summary import CellState
from storlab.grouping import grouped
from storlab.report.model.input import ReportInput
from storlab.report.model.tables import ALL_CELLS, Table, among

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
