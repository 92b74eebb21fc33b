"""Block I/O in tables: what share of it is made of whole units, what goes below one, and how it is distributed.

And how probes watched: by which hook of the kernel, which disks, and why so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storlab.analysis.summary import BelowUnit, BlockIO, CellState, Share, SizeShare, Summary
from storlab.base.units import size_text
from storlab.report.document import Table
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.words import compact
from storlab.report.model.nodes import Grid, grids
from storlab.report.model.setup import facts_of
from storlab.report.model.tables import ALL_CELLS, among, noted

NAMES = {"write": "Writes", "read": "Reads", "all": "All requests", "discard": "Discards"}
"""Operations as a heading calls them."""

MAIN = ("write", "all")
"""What a study of alignment is about; tables of other operations stand further down."""

_MEASURES = {
    "requests": ("in whole units, with their spread", "% of requests"),
    "bytes": ("in whole units by bytes, with their spread", "% of bytes"),
    "offsets": ("that start on a boundary", "% of requests; their length may be anything"),
    "amplification": ("as a device with such units would do them", "bytes for each byte sent"),
}
"""What there is of each unit: how the title of its table goes on, and its caption."""

_SIZES = {"lengths": "by length", "alignments": "by alignment", "offsets": "by alignment of the offset"}
_WHY = {"uneven": "uneven", "across": "off the boundary"}
_ABSENT = "–"
_LENGTHS = 2  # of a kind, with their shares
_LARGE = 0.1  # of a share: a spread between rounds that a reader must know of
_FLAGS = (
    "meta is the file system's own; sync: somebody waits for it; fua and preflush: it must be durable at once; "
    "background: nobody waits."
)
_AMPLIFICATION = (
    "Amplification: bytes of all units that are touched, for each byte sent; what a device with such a unit would "
    "write if it merged nothing."
)
_PLACES = ("probe", "nodes", "cells")


@dataclass(frozen=True)
class Group:
    """One operation under one load: level of the compared factor → its block I/O, or why it has none."""

    operation: str
    grid: Grid
    rows: dict[str, BlockIO]
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        name = NAMES.get(self.operation, self.operation.replace("_", " ").capitalize())
        return f"{name}: {words.levels(self.grid.within)}" if self.grid.within else name

    def titled(self, what: str) -> str:
        name, colon, where = self.name.partition(":")
        return f"{name} {what}{colon}{where}"

    @property
    def unit(self) -> str:
        return size_text(next(iter(self.rows.values())).unit)


def groups(summary: Summary) -> list[Group]:
    """Operations in the summary's order; within each, the loads in the study's order."""
    found = {(row.operation, row.cell): row for row in summary.block_io}
    states = {state.cell: state for state in summary.cells}
    result = []
    for operation in dict.fromkeys(row.operation for row in summary.block_io):
        for grid in grids(summary):
            rows = {level: found[operation, cell] for level, cell in grid.cells.items() if (operation, cell) in found}
            if rows:
                absent = {level: _why(states[cell]) for level, cell in grid.cells.items() if level not in rows}
                result.append(Group(operation, grid, rows, absent))
    return result


def _why(cell: CellState) -> str:
    """Why a cell has no block I/O: "unsupported: mkfs.ext4: …"."""
    if cell.status in ("measured", "partly failed"):
        return "no such request was counted"
    status = "not measured" if cell.status == "not run" else cell.status
    return ": ".join((status, *cell.reasons[:1]))


def block_tables(summary: Summary) -> list[Table]:
    """Of the operations that a study of alignment is about: shares at each unit, and what goes below."""
    main = [group for group in groups(summary) if group.operation in MAIN]
    return [table for group in main for table in (*_unit_table(group), *_below_table(group))]


def block_detail_tables(summary: Summary) -> list[Table]:
    """Distributions of everything, of all other operations the rest, too, and how all of it was counted."""
    found: list[Table] = []
    for group in groups(summary):
        if group.operation not in MAIN:
            found += [*_unit_table(group), *_below_table(group)]
        found += [*_spread_tables(group), *_size_tables(group)]
    watched = watching_table(summary) if found else None
    return [*found, *([watched] if watched else [])]


def in_words(group: Group, name: str) -> str:
    """What the chart of ``lengths`` or ``alignments`` shows."""
    measure, what = ("shorter", "shorter than") if name == "lengths" else ("requests", "in whole")
    told = []
    for level, row in group.rows.items():
        share = next((getattr(share, measure) for share in row.units if share.unit == row.unit), None)
        told.append(f"{level} {_percent(share)} %" if share else f"{level} unknown")
    shown = f"{group.name}, {name} of requests by set-up. Share {what} {group.unit}: {', '.join(told)}."
    return " ".join([shown, *(words.stop(f"{level}: {why}") for level, why in group.absent.items())])


def _unit_table(group: Group) -> Iterator[Table]:
    """Shares of requests at each unit; of the unit that the study asks about, of bytes too, and the amplification."""
    units = [share.unit for share in next(iter(group.rows.values())).units]
    asked = {level: share for level, row in group.rows.items() for share in row.units if share.unit == row.unit}
    rows = list[tuple[str, ...]]()
    amplified = in_bytes = ""
    if any(share.bytes for share in asked.values()):
        in_bytes = "bytes"
    if any(share.amplification for share in asked.values()):
        amplified = noted("ampl.", [_AMPLIFICATION])
    for level, row in group.rows.items():
        more = [
            *([_percent(asked[level].bytes)] if in_bytes else []),
            *([_times(asked[level].amplification)] if amplified else []),
        ]
        rows.append((noted(level, row.warnings), *(_percent(share.requests) for share in row.units), *more))
    rows += [(noted(level, [why]), *[_ABSENT] * (len(rows[0]) - 1)) for level, why in group.absent.items()]
    columns = [group.grid.factor or "cell", *map(size_text, units), *filter(None, (in_bytes, amplified))]
    caption = "% of requests whose length and offset are multiples of it"
    if in_bytes or amplified:
        caption += f"; then % of bytes and amplification at {group.unit}"
    caption += "; ±: the round that deviates most, where it deviates much"
    title = group.titled("in whole units")
    yield Table(title, tuple(columns), tuple(rows), 1, caption, divisible=True)


def _spread_tables(group: Group) -> Iterator[Table]:
    for measure, (what, caption) in _MEASURES.items():
        shares = {level: [getattr(share, measure) for share in row.units] for level, row in group.rows.items()}
        if any(share for each in shares.values() for share in each):
            show = _times if measure == "amplification" else _percent
            rows = tuple((level, *(show(share, spread=True) for share in each)) for level, each in shares.items())
            units = (size_text(share.unit) for share in next(iter(group.rows.values())).units)
            columns = (group.grid.factor or "cell", *units)
            spread = f"{caption}; mean over rounds ± the round that deviates most"
            yield Table(group.titled(what), columns, rows, 1, spread, divisible=True)


def _below_table(group: Group) -> Iterator[Table]:
    known = {level: row.below for level, row in group.rows.items() if row.below is not None}
    if not known:
        return
    rows, commands = list[tuple[str, ...]](), any(kind.comm for kinds in known.values() for kind in kinds)
    for level, kinds in known.items():
        for kind in kinds:
            comm = [kind.comm or ("others" if kind.flags is None else "unknown")] if commands else []
            numbers = (fmt.quantity(kind.count, "1"), _percent(kind.requests), _percent(kind.bytes, spread=False))
            rows.append((level, _flags(kind), *comm, _what(kind), *numbers))
        if not kinds:
            rows.append((level, "nothing", *([""] if commands else []), "", "0", "0", "0"))
    named = [group.grid.factor or "cell", "flags", *(["command"] if commands else []), "length"]
    caption = f"no whole number of {group.unit}, by what the kernel says of them"
    title = group.titled(f"below {group.unit}")
    yield Table(title, (*named, "a round", "%", "% of bytes"), tuple(rows), len(named), caption, more=(_FLAGS,))


def _size_tables(group: Group) -> Iterator[Table]:
    for name, what in _SIZES.items():
        shares: dict[str, Sequence[SizeShare]] = {level: getattr(row, name) for level, row in group.rows.items()}
        sizes = sorted({share.size for each in shares.values() for share in each})
        if not sizes:
            continue
        drawn = {level: {share.size: _percent(share.requests) for share in each} for level, each in shares.items()}
        rows = tuple((level, *(each.get(size, "") for size in sizes)) for level, each in drawn.items())
        columns = (group.grid.factor or "cell", *(size_name(size, sizes) for size in sizes))
        yield Table(group.titled(what), columns, rows, 1, "% of requests", divisible=True)


def size_name(size: int, sizes: Sequence[int]) -> str:
    """A class of sizes by its lower end; the last one holds everything above, too."""
    return f"{size_text(size)} or more" if size == 1 << 20 and size == sizes[-1] else size_text(size)


def _percent(share: Share | None, *, spread: bool | None = None) -> str:
    """In per cent, without the sign. ``spread`` between rounds: with it, without, or where it is large (``None``)."""
    if share is None:
        return "unknown"
    half = max(share.high - share.mean, share.mean - share.low)
    shown = half > _LARGE * min(share.mean, 1 - share.mean) if spread is None else spread
    return fmt.part(share.mean, half if shown else 0.0).removesuffix(" %")


def _times(share: Share | None, *, spread: bool = False) -> str:
    if share is None:
        return "unknown"
    half = max(share.high - share.mean, share.mean - share.low)
    shown = fmt.number(share.mean, 2)
    varies = fmt.number(half, 2)
    return f"{shown} ±{varies}×" if spread and varies.strip("0.") else f"{shown}×"


def _flags(kind: BelowUnit) -> str:
    if kind.flags is None:
        return "others"
    return kind.flags.replace("+", " ") or "none"


def _what(kind: BelowUnit) -> str:
    if kind.why is None:
        return "several"
    often, *more = kind.lengths
    if kind.why == "shorter":
        shown = [f"{size_text(length)} ({fmt.part(share)})" for length, share in kind.lengths[:_LENGTHS]]
        rest = len(kind.lengths) > _LENGTHS
        return f"{', '.join(shown)}{', …' if rest else ''}" if more else size_text(often[0])
    length = f"such as {size_text(often[0])}" if more else size_text(often[0])
    return f"{_WHY[kind.why]}, {length}"


def watching_table(summary: Summary) -> Table | None:
    """A row for all places where a probe watched in the same way; ``None`` where no probe says how it did."""
    entries: list[Mapping[str, Any]] = list(summary.facts.get("probes") or ())  # type: ignore[call-overload]
    if not entries:
        return None
    facts = [{f.name: f.text for f in facts_of({k: v for k, v in e.items() if k not in _PLACES})} for e in entries]
    names = list(dict.fromkeys(name for each in facts for name in each))
    measured = [state for state in summary.cells if state.rounds]
    rows = []
    for entry, own in zip(entries, facts, strict=True):
        cells = among(entry["cells"], measured)
        rows.append((str(entry["probe"]), compact(entry["nodes"]), cells, *(own.get(name, "") for name in names)))
    kept = [i for i in range(len(_PLACES) + len(names)) if i != 2 or any(row[2] != ALL_CELLS for row in rows)]
    return Table("How probes watched", (*_PLACES, *names), tuple(rows), len(kept)).of_columns(kept)
