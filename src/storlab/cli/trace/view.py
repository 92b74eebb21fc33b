"""The live view of ``storlab trace``: what was seen so far, as Rich draws it. Below 80 columns there is less of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from storlab.base.text import printable
from storlab.base.units import size_text
from storlab.blockio.requests import UNITS, data_requests, request_frame, shares, with_alignment
from storlab.blockio.text import percent
from storlab.blockio.trace_output import LATENCY_COLUMNS, Counts, Lost, Started, lost_sentences
from storlab.measurements import empty
from storlab.percentiles import percentiles
from storlab.report.language.format import quantity

_SIGNS = {"write": ("█", "magenta"), "read": ("▒", "cyan")}  # told apart without colour, too
_OTHER = ("░", "yellow")
_LABEL, _COUNT, _SEAM = 7, 9, 2  # columns of a histogram's row
_LEAST_BAR = len("Alignment")  # its heading
_ROOMY = 30  # lines: if the terminal has so many, histograms are higher, and times in the queue are shown, too
_MOST_FLAGS = 3
_PERCENTILES = (50.0, 99.0, 99.9)
_WORDS, _SHARE, _TIME = 18, 7, 8  # columns of the tables: the first, a share, a time; with a seam between
_UNITS_THAT_STAY = (16384, 4096, 65536, 8192, 32768)
"""Where not all have room, the first of these."""


@dataclass(frozen=True)
class Seen:
    """All that was seen since the start; ``elapsed`` is in s. Frames: ``REQUEST_COLUMNS``, ``LATENCY_COLUMNS``."""

    disks: tuple[str, ...]
    hook: str
    elapsed: float
    requests: pl.DataFrame
    latency: pl.DataFrame
    lost: Lost

    @classmethod
    def of(cls, started: Started, counts: Counts | None) -> Seen:
        """From the tracer's lines; before the first counts nothing was seen."""
        if counts is None:
            return cls(started.disks, started.hook, 0.0, request_frame([]), empty(LATENCY_COLUMNS), Lost())
        elapsed = (counts.monotonic_ns - started.monotonic_ns) / 1e9
        requests, latency = counts.request_frame(), counts.latency_frame()
        return cls(started.disks, started.hook, elapsed, requests, latency, counts.lost)


def requests_view(seen: Seen, width: int, height: int) -> Iterator[RenderableType]:
    """As wide as the terminal is, and no higher, as long as that has 24 lines."""
    yield _heading(seen)
    yield _totals(seen)
    data = with_alignment(data_requests(seen.requests))
    if data.is_empty():
        yield Text("\nNo request with data yet.", style="dim")
        return
    yield Text()
    yield from _histograms(data, width, 4 if height < _ROOMY else 12)
    yield Text()
    yield _shares(data, width)
    yield _flags(seen.requests)
    if seen.requests["comm"].null_count() < seen.requests.height:
        yield _named("By   ", _most(seen.requests.filter(pl.col("comm").is_not_null()), "comm"))
    if not seen.latency.is_empty():
        yield _latencies(seen.latency, ("service", "queued") if height >= _ROOMY else ("service",), width)
    for sentence in lost_sentences(seen.lost):
        yield Text(sentence, style="bold yellow")


def _heading(seen: Seen) -> Text:
    disks = ", ".join(map(printable, seen.disks)) or "all disks"
    text = Text(f"Block I/O of {disks}", style="bold", no_wrap=True, overflow="ellipsis")
    return text.append(f"   {seen.elapsed:.0f} s, {seen.hook}; Ctrl-C ends it", style="not bold dim")


def _totals(seen: Seen) -> Text:
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    sums = seen.requests.group_by("operation").agg(pl.col("count").sum(), size).sort("count", descending=True)
    parts = []
    for operation, count, moved in sums.iter_rows():
        sign, style = _SIGNS.get(operation, _OTHER)
        parts.append(Text(f"{sign} ", style=style).append(f"{operation} {count:,}", style="default"))
        if moved:
            parts[-1].append(f" ({quantity(float(moved), 'B')})", style="dim")
    text = Text("   ").join(parts)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _histograms(data: pl.DataFrame, width: int, rows: int) -> Iterator[Table]:
    """Side by side, or where that is too narrow one above the other, in as many rows."""
    half = (width - _SEAM) // 2
    beside = half >= _LABEL + _COUNT + 2 + _LEAST_BAR
    size = (half, rows) if beside else (width, max(rows // 2, 2))
    both = [_histogram(data, name, name.capitalize(), *size) for name in ("length", "alignment")]
    if not beside:
        yield from both
        return
    table = Table.grid(padding=(0, _SEAM, 0, 0))
    table.add_row(*both)
    yield table


def _histogram(data: pl.DataFrame, column: str, title: str, width: int, most: int) -> Table:
    """Values in their order, each with a bar of writes, reads and the rest.

    Where there are more than fit, those stay that matter: of lengths the most frequent, of alignments the least.
    """
    kind = pl.col("operation").replace_strict({"read": "read", "write": "write"}, default="other").alias("kind")
    counts = data.with_columns(kind).group_by(column, "kind").agg(pl.col("count").sum())
    sums = counts.group_by(column).agg(pl.col("count").sum())
    sums = sums.sort(column) if column == "alignment" else sums.sort("count", column, descending=True)
    left_out = sums[most - 1 :] if sums.height > most else sums.clear()
    shown = sums[: most - 1 if left_out.height else most].sort(column)
    bar = max(width - _LABEL - _COUNT - 2, _LEAST_BAR)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", width=_LABEL)
    table.add_column(justify="right", width=_COUNT)
    table.add_column(width=bar, no_wrap=True)
    table.add_row(Text(""), Text("count", style="dim"), Text(title, style="bold"))
    for value, count in shown.iter_rows():
        own = dict(counts.filter(pl.col(column) == value).select("kind", "count").iter_rows())
        table.add_row(size_text(value), _short(count), _bar(own, count, int(shown["count"].max() or 1), bar))  # type: ignore[arg-type]
    if left_out.height:
        table.add_row("…", _short(int(left_out["count"].sum())), Text(f"{left_out.height} more", style="dim"))
    return table


def _bar(kinds: dict[str, int], count: int, most: int, width: int) -> Text:
    """A bar as long as its share of the longest, its parts in proportion; what occurs at all is seen."""
    length = max(count * width // most, 1)
    text, done, drawn = Text(), 0, 0
    for kind in ("write", "read", "other"):
        sign, style = _SIGNS.get(kind, _OTHER)
        done += kinds.get(kind, 0)
        end = round(done * length / count)
        text.append(sign * (end - drawn), style=style)
        drawn = end
    return text


def _shares(data: pl.DataFrame, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Aligned to at least", no_wrap=True)
    room = max((width - _WORDS) // (_SHARE + _SEAM), 1)
    units = [unit for unit in UNITS if unit in _UNITS_THAT_STAY[:room]]
    for unit in units:
        table.add_column(size_text(unit), justify="right", width=_SHARE, no_wrap=True)
    found = shares(data).filter(pl.col("unit").is_in(units))
    for operation in ("write", "read"):
        own = found.filter(pl.col("operation") == operation)
        if own.is_empty():
            continue
        table.add_row(f"{operation}: requests", *map(_share, own["share"]))
        table.add_row(f"{'':{len(operation)}}  bytes", *map(_share, own["byte_share"]))
        if operation == "write" and own["amplification"].null_count() == 0:
            table.add_row("       amplification", *(f"{factor:.2f}" for factor in own["amplification"]))
    return table


def _share(share: float) -> Text:
    style = "green" if share == 1 else "red" if share < 0.5 else "yellow"
    return Text(percent(share), style=style)


def _flags(requests: pl.DataFrame) -> Table:
    own = ((operation, requests.filter(pl.col("operation") == operation)) for operation in ("write", "read"))
    said = [f"{operation}: {_most(rows, 'flags')}" for operation, rows in own if rows.height]
    return _named("Flags", *said)


def _named(name: str, *said: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for at, text in enumerate(said):
        table.add_row("" if at else name, text)
    return table


def _most(requests: pl.DataFrame, column: str) -> str:
    counts = requests.group_by(column).agg(pl.col("count").sum()).sort(["count", column], descending=[True, False])
    total = counts["count"].sum()
    said = [f"{printable(value) or 'none'} {percent(n / total)}" for value, n in counts.head(_MOST_FLAGS).iter_rows()]
    return ", ".join(said) + (", …" if counts.height > _MOST_FLAGS else "")


def _latencies(latency: pl.DataFrame, shown: Sequence[str], width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Latency", no_wrap=True)
    room = max((width - _WORDS) // (_TIME + _SEAM), 1)
    for name in (*(f"p{p:g}" for p in _PERCENTILES), "max")[:room]:
        table.add_column(name, justify="right", width=_TIME, no_wrap=True)
    for operation in ("write", "read", "flush"):
        for what in shown:
            own = latency.filter(pl.col("operation") == operation, pl.col("what") == what)
            if own.height:
                found = percentiles(own, _PERCENTILES)
                longest = [*found.values(), float(own["upper"].max())]  # type: ignore[arg-type]
                table.add_row(f"{operation}, {what}", *(quantity(seconds, "s") for seconds in longest[:room]))
    return table


def _short(count: int) -> str:
    """A number in at most 9 columns."""
    return f"{count:,}" if count < 100_000_000 else quantity(float(count), "1")
