"""What requests to block devices were: their sizes and their alignment, over rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from storlab.analysis.design import Design
from storlab.analysis.summary import BelowUnit, BlockIO, Share, SizeShare, UnitShare
from storlab.base.text import grouped
from storlab.blockio.requests import KEYS, UNITS, added_up, data_requests, shares, sum_or_null, with_alignment
from storlab.findings.rounds import LeftOut
from storlab.metrics import END, Declarations, named

# Shares of each round, and then their mean, least and most over the rounds.
#
# All frames have the columns ``cell``, ``operation`` and ``round`` (``ROUND``), and ``count``.

PLACE = ["cell", "operation"]
ROUND = [*PLACE, "round"]

LARGEST = 1 << 20
"""B: the last class of sizes; all that is larger belongs to it, and offset 0, which is aligned to anything."""

Place = tuple[int, str]
"""A cell and an operation."""

Total = tuple[int, float, float | None]
"""Rounds, and the means over them of requests and of bytes."""


def totals(rows: pl.DataFrame) -> dict[Place, Total]:
    """Of each cell and operation, from ``count`` and ``bytes``."""
    by_round = rows.group_by(ROUND).agg(pl.col("count").sum(), sum_or_null("bytes"))
    means = by_round.group_by(PLACE).agg(pl.len(), pl.col("count").mean(), pl.col("bytes").mean()).sort(PLACE)
    return {(cell, operation): (n, count, size) for cell, operation, n, count, size in means.iter_rows()}


def sizes(rows: pl.DataFrame, column: str) -> dict[Place, list[SizeShare]]:
    """Shares by size class: the largest power of two that is not above ``column``."""
    powers = [1 << power for power in range(9, LARGEST.bit_length())]
    column_class = pl.lit(powers[0], pl.Int64)
    for power in powers[1:]:
        column_class = pl.when(pl.col(column) >= power).then(power).otherwise(column_class)
    found = over_rounds(rows.with_columns(size=column_class), ["size"]).iter_rows(named=True)
    return grouped(
        (place_of(row), SizeShare(row["size"], share_of(row, "requests"), share_or_none(row, "bytes"))) for row in found
    )


def place_of(row: Mapping[str, Any]) -> Place:
    return row["cell"], row["operation"]


def over_rounds(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Shares of each ``by`` in its cell and operation: mean, least and most over the rounds, requests and bytes.

    A round in which there were other requests only counts as 0.
    """
    totals = rows.group_by(ROUND).agg(pl.col("count").sum().alias("all"), sum_or_null("bytes").alias("all_bytes"))
    rounds = totals.group_by(PLACE).agg(pl.len().alias("rounds"))
    each = (
        rows.group_by([*ROUND, *by])
        .agg(pl.col("count").sum(), sum_or_null("bytes"))
        .join(totals, on=ROUND)
        .with_columns(requests=pl.col("count") / pl.col("all"), bytes=pl.col("bytes") / pl.col("all_bytes"))
    )
    everywhere, number = pl.len() == pl.col("rounds").first(), pl.col("rounds").first()
    statistics = []
    for name in ("requests", "bytes"):
        least = pl.when(everywhere).then(pl.col(name).min()).otherwise(0.0)
        statistics += _spread(name, pl.col(name).sum() / number, least)
    return (
        each.join(rounds, on=PLACE)
        .sort([*PLACE, *by, "round"])  # so that sums are the same to the last bit whenever a run is analysed again
        .group_by([*PLACE, *by], maintain_order=True)
        .agg(*statistics, (pl.col("count").sum() / pl.col("rounds").first()).alias("count"))
    )


def _spread(name: str, mean: pl.Expr, low: pl.Expr) -> list[pl.Expr]:
    """The columns that ``share_of`` takes; no mean where a value is unknown."""
    known = pl.when(pl.col(name).null_count() == 0).then(mean)
    return [known.alias(f"{name}.mean"), low.alias(f"{name}.low"), pl.col(name).max().alias(f"{name}.high")]


def share_of(row: Mapping[str, float], name: str) -> Share:
    """The share whose three columns begin with ``name``."""
    return Share(row[f"{name}.mean"], row[f"{name}.low"], row[f"{name}.high"])


def share_or_none(row: Mapping[str, float], name: str) -> Share | None:
    return None if row[f"{name}.mean"] is None else share_of(row, name)


def unit_shares(counted: pl.DataFrame) -> dict[Place, list[UnitShare]]:
    """``UnitShare`` of each unit; ``counted`` has the columns of ``storlab.blockio.requests.shares``."""
    names = ["share", "byte_share", "offset_share", "shorter", "amplification"]
    rows = shares(counted, UNITS, ROUND).with_columns(shorter=pl.col("below") / pl.col("requests"))
    statistics = [each for name in names for each in _spread(name, pl.col(name).mean(), pl.col(name).min())]
    ordered = rows.sort(*PLACE, "unit", "round")
    found = ordered.group_by([*PLACE, "unit"], maintain_order=True).agg(*statistics).iter_rows(named=True)
    return grouped((place_of(row), UnitShare(row["unit"], *(share_or_none(row, n) for n in names))) for row in found)


def at_least(bins: pl.DataFrame, *, shorter: bool = False) -> dict[tuple[int, str, int], Share]:
    """Share of requests in bins from each unit on, or below it, by cell, operation and unit."""
    found: dict[tuple[int, str, int], Share] = {}
    for unit in UNITS:
        wanted = pl.col("size") < unit if shorter else pl.col("size") >= unit
        part = pl.col("count").filter(wanted).sum() / pl.col("count").sum()
        by_round = bins.group_by(ROUND).agg(share=part).sort(ROUND)
        share = pl.col("share")
        for cell, operation, *values in (
            by_round.group_by(PLACE, maintain_order=True)
            .agg(mean=share.mean(), low=share.min(), high=share.max())
            .iter_rows()
        ):
            found[cell, operation, unit] = Share(*values)
    return found


# From the tables ``requests`` and ``histograms`` to ``BlockIO``: shares of each round, and then over the rounds.
#
# Where requests were counted by what they are, all comes from there. A run that has histograms only (imported from
# another tool) has shares of requests, and nothing of bytes where these aren't exact.

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
