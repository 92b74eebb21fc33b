"""From the tables ``requests`` and ``histograms`` to ``BlockIO``: shares of each round, and then over the rounds.

Where requests were counted by what they are, all comes from there. A run that has histograms only (imported from
another tool) has shares of requests, and nothing of bytes where these aren't exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from storlab.analysis.block.rounds import (
    LARGEST,
    PLACE,
    ROUND,
    Place,
    Total,
    at_least,
    over_rounds,
    place_of,
    share_of,
    sizes,
    totals,
    unit_shares,
)
from storlab.analysis.design import Design
from storlab.analysis.summary import BelowUnit, BlockIO, SizeShare, UnitShare
from storlab.blockio.requests import KEYS, UNITS, added_up, data_requests, with_alignment
from storlab.findings.rounds import LeftOut
from storlab.grouping import grouped
from storlab.metrics import END, Declarations, named

DEFAULT_UNIT = 16384

_LENGTH, _ALIGNMENT, _OFFSET = "request length", "request alignment", "request offset"
_SINGLE = 512  # B: bins that are no wider hold requests of one length


def block_io(
    requests: pl.DataFrame | None, histograms: pl.DataFrame | None, done: pl.DataFrame, design: Design
) -> tuple[BlockIO, ...]:
    """One row a cell and operation, in the order of the design, writes first.

    ``requests`` and ``histograms`` as in ``docs/reference/records.md``; ``done`` has the columns ``trial``, ``cell``,
    ``round``, at most one trial for each cell and round.
    """
    requests, histograms = _of_one_end(requests), _of_one_end(histograms)
    unit = unit_of(design)
    done = done.filter(pl.col("cell").is_in([cell for cell, _ in design.cells]))
    found = [] if requests is None else _from_requests(_counted(requests, done), design, unit)
    known = {(row.cell, row.operation) for row in found}
    drawn = [] if histograms is None else _from_bins(_bins(histograms, done, design.declared), design, unit)
    found += [row for row in drawn if (row.cell, row.operation) not in known]
    rounds = dict(done.group_by("cell").len().iter_rows())
    place = {cell: index for index, (cell, _) in enumerate(design.cells)}
    found.sort(key=lambda row: (row.operation != "write", row.operation, place[row.cell]))
    return tuple(_with_warnings(row, rounds.get(row.cell, 0)) for row in found)


def _of_one_end(rows: pl.DataFrame | None) -> pl.DataFrame | None:
    if rows is None or rows.is_empty():
        return rows
    sources = rows["source"].unique(maintain_order=True).to_list()
    return rows.filter(pl.col("source").is_in([each for each in sources if END not in each] or sources[:1]))


def histograms_of(declared: Declarations, histograms: pl.DataFrame, *quantities: str) -> pl.DataFrame:
    """Which of these histograms are of the ``quantities``: ``source, metric, quantity``, and whose they are."""
    known = histograms.select("source", "metric").unique(maintain_order=True).rows()
    specs = ((source, declared[source].find(metric)) for source, metric in known)
    rows = [(source, spec.name, spec.quantity, spec.subject) for source, spec in specs if spec.quantity in quantities]
    columns = ("source", "metric", "quantity", "subject")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def unit_of(design: Design) -> int:
    """The unit that the study asks about with its metrics; 16 KiB where it asks about none."""
    names = [design.primary, *(name for spec in design.comparisons or () for name in spec.metrics or ())]
    units = {(source, spec.name): spec.granule for source, specs in design.declared.items() for spec in specs}
    asked = (units[key] for name in names for key in named(name, [key for key, unit in units.items() if unit]))
    return next(asked, DEFAULT_UNIT)


def _with_warnings(row: BlockIO, rounds: int) -> BlockIO:
    if row.rounds >= rounds:
        return row
    warning = LeftOut("no request", count=rounds - row.rounds, of=rounds, side=row.operation)
    return replace(row, warnings=(*row.warnings, warning))


def _counted(requests: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    rows = data_requests(requests).join(done.select("trial"), on="trial", how="semi")
    kinds = [key for key in KEYS if key not in ("disk", "operation")]
    together = added_up(rows, [*ROUND, *kinds])
    return with_alignment(together).with_columns(bytes=pl.col("count") * pl.col("length"))


def _bins(histograms: pl.DataFrame, done: pl.DataFrame, declared: Declarations) -> pl.DataFrame:
    """Bins of each round: ``cell, operation, round, kind, size, wide, count``, all nodes added up."""
    kinds = histograms_of(declared, histograms, _LENGTH, _ALIGNMENT, _OFFSET)
    return (
        histograms.filter(pl.col("job").is_null())
        .join(done.select("trial"), on="trial", how="semi")
        .join(kinds.rename({"subject": "operation", "quantity": "kind"}), on=["source", "metric"])
        .with_columns(size=pl.col("lower").cast(pl.Int64), wide=pl.col("upper") - pl.col("lower") > _SINGLE)
        .group_by([*ROUND, "kind", "size", "wide"])
        .agg(pl.col("count").sum())
    )


def _from_requests(counted: pl.DataFrame, design: Design, unit: int) -> list[BlockIO]:
    if counted.is_empty():
        return []
    whole = pl.when(pl.col("offset_alignment") == 0).then(LARGEST).otherwise(pl.col("offset_alignment"))
    drawn = (
        sizes(counted, "length"),
        sizes(counted, "alignment"),
        sizes(counted.with_columns(offset_size=whole), "offset_size"),
    )
    units, kinds = unit_shares(counted), below(counted, unit)
    return [
        _row(design, place, unit, total, drawn, tuple(units.get(place, ())), tuple(kinds.get(place, ())))
        for place, total in totals(counted).items()
    ]


def _from_bins(bins: pl.DataFrame, design: Design, unit: int) -> list[BlockIO]:
    if bins.is_empty():
        return []
    lengths, alignments, offsets = (bins.filter(pl.col("kind") == kind) for kind in (_LENGTH, _ALIGNMENT, _OFFSET))
    exact = pl.when(~pl.col("wide").any().over(ROUND)).then(pl.col("count") * pl.col("size"))
    unknown = pl.lit(None, pl.Int64)
    lengths = lengths.with_columns(bytes=exact)
    alignments, offsets = alignments.with_columns(bytes=unknown), offsets.with_columns(bytes=unknown)
    drawn = (sizes(lengths, "size"), sizes(alignments, "size"), sizes(offsets, "size"))
    aligned, on_boundary, shorter = at_least(alignments), at_least(offsets), at_least(lengths, shorter=True)
    rows = []
    for place, total in {**totals(alignments), **totals(lengths)}.items():
        units = tuple(
            UnitShare(u, aligned.get((*place, u)), None, on_boundary.get((*place, u)), shorter.get((*place, u)), None)
            for u in UNITS
        )
        rows.append(_row(design, place, unit, total, drawn, units, None))
    return rows


def _row(
    design: Design,
    place: Place,
    unit: int,
    total: Total,
    drawn: tuple[
        Mapping[Place, Sequence[SizeShare]], Mapping[Place, Sequence[SizeShare]], Mapping[Place, Sequence[SizeShare]]
    ],
    units: tuple[UnitShare, ...],
    kinds: tuple[BelowUnit, ...] | None,
) -> BlockIO:
    cell, operation = place
    lengths, alignments, offsets = (tuple(found.get(place, ())) for found in drawn)
    levels = dict(dict(design.cells)[cell])
    return BlockIO(cell, levels, operation, unit, *total, lengths, alignments, offsets, units, kinds)


_KINDS = 10  # a cell's kinds that are told apart
_LENGTHS = 3  # of each kind


def below(counted: pl.DataFrame, unit: int) -> dict[Place, list[BelowUnit]]:
    """Kinds of requests that are no whole number of units, the most frequent first."""
    length = pl.col("length")
    why = pl.when(length < unit).then(pl.lit("shorter")).when(length % unit != 0).then(pl.lit("uneven"))
    rows = counted.with_columns(why=pl.when(pl.col("alignment") < unit).then(why.otherwise(pl.lit("across"))))
    kinds = ["flags", "comm", "why"]
    ranked = (
        over_rounds(rows, kinds)
        .filter(pl.col("why").is_not_null())
        .with_columns(rank=pl.col("count").rank("ordinal", descending=True).over(PLACE))
    )
    rows = (
        rows.join(ranked.select(*PLACE, *kinds, "rank"), on=[*PLACE, *kinds], how="left", nulls_equal=True)
        .with_columns(further=(pl.col("rank") > _KINDS).fill_null(False))
        .with_columns(pl.when(~pl.col("further")).then(pl.col(name)).alias(name) for name in ("flags", "comm"))
        .with_columns(why=pl.when(pl.col("further")).then(pl.lit("several")).otherwise(pl.col("why")))
    )
    table = over_rounds(rows, kinds).filter(pl.col("why").is_not_null())
    lengths = _frequent_lengths(rows.filter(pl.col("why").is_not_null()), kinds)

    def kind(row: Mapping[str, Any]) -> BelowUnit:
        why = None if row["why"] == "several" else row["why"]
        in_words = (row["flags"], row["comm"], why, row["count"])
        often = lengths[tuple(row[name] for name in (*PLACE, *kinds))]
        return BelowUnit(*in_words, share_of(row, "requests"), share_of(row, "bytes"), often)

    ordered = table.sort(pl.col("flags").is_null(), -pl.col("count"), *PLACE, *kinds, nulls_last=True)
    return grouped((place_of(row), kind(row)) for row in ordered.iter_rows(named=True))


def _frequent_lengths(
    rows: pl.DataFrame, kinds: Iterable[str]
) -> dict[tuple[object, ...], tuple[tuple[int, float], ...]]:
    keys = [*PLACE, *kinds]
    counts = rows.group_by([*keys, "length"]).agg(pl.col("count").sum())
    shared = counts.with_columns(share=pl.col("count") / pl.col("count").sum().over(keys))
    top = shared.sort(["count", "length"], descending=[True, False]).group_by(keys, maintain_order=True).head(_LENGTHS)
    found: dict[tuple[object, ...], tuple[tuple[int, float], ...]] = {}
    for *key, length, _, share in top.select(*keys, "length", "count", "share").iter_rows():
        found[tuple(key)] = (*found.get(tuple(key), ()), (length, share))
    return found
