"""The lines that sysbench prints at every report interval, as a frame.

Two readers, with the same result. ``alike`` takes lines of one layout and nothing else, as sysbench prints them to a
file: their numbers are found by what lies between them, and all else is compared with the layout in one go. Where
anything differs, ``each`` looks at every line by itself.
"""

from __future__ import annotations

import io
import math
import re
import string
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from storlab.base.text import grouped
from storlab.measurements import HISTOGRAM_COLUMNS

Test = Literal["oltp", "fileio", "events"]

LAYOUTS: dict[Test, str] = {
    "oltp": "[ {t}s ] thds: {threads} tps: {tps} qps: {qps} (r/w/o: {read}/{write}/{other}) lat (ms,{percentile}%): "
    "{latency} err/s: {errors} reconn/s: {reconnects}",
    "fileio": "[ {t}s ] reads: {read} MiB/s writes: {write} MiB/s fsyncs: {fsync}/s latency (ms,{percentile}%): "
    "{latency}",
    "events": "[ {t}s ] thds: {threads} eps: {eps} lat (ms,{percentile}%): {latency}",
}
_MARKS: dict[Test, bytes] = {"oltp": b" tps: ", "fileio": b" MiB/s fsyncs: ", "events": b" eps: "}
_OF_TPCC = " err/s: ", " err/s "
"""sysbench-tpcc prints its intervals itself, and there the latter."""
SHOWS = 65536
"""Bytes from the first interval on, by which it is seen which test it is."""

_PIECE = 1 << 17

_OLD = re.compile(
    rb"^\[ *(?P<t>\d+)s ?\] threads: (?P<threads>\d+), tps: (?P<tps>N), reads(?:/s)?: (?P<read>N), "
    rb"writes(?:/s)?: (?P<write>N), response time: (?P<latency>N)ms \((?P<percentile>\d+)%\)"
    rb"(?:, errors: (?P<errors>N), reconnects: +(?P<reconnects>N))?$".replace(b"N", rb"\d{1,15}(?:\.\d{1,9})?"),
    re.MULTILINE,
)
_BEGUN = re.compile(rb"^\[ *\d+s ?\] ", re.MULTILINE)
_OF_OLD = b" response time: "
"""Of 0.5, and of what became 1.0."""

_NUMERALS = b"0123456789."
_IS_NUMERAL = bytes(character in _NUMERALS for character in range(256))
_COMMAS = bytes.maketrans(b":/", b",,")
_WORDS = bytes(character for character in range(256) if character not in _NUMERALS + b":/,\n")
"""Without them, and with ``_COMMAS``, a line is its numbers between commas."""
_BLANKS = bytes.maketrans(b"/,%()", b"     ")
"""With these as blanks, every number of a line stands between two blanks, and always in the same place."""


def read_intervals(text: bytes, begin: int, end: int) -> tuple[Test | None, int, pl.DataFrame]:
    shown = text[begin : min(begin + SHOWS, end)]
    unlike = 0
    if _OF_OLD in shown:
        old = _old(text, begin, end)
        return ("oltp" if old.height else None), len(_BEGUN.findall(text, begin, end)), old
    for test, mark in _MARKS.items():
        if mark in shown:
            layout = LAYOUTS[test] if b" err/s: " in shown else LAYOUTS[test].replace(*_OF_TPCC)
            rows = alike(text, begin, end, layout)
            lines, rows = each(text[begin:end], layout) if rows is None else (rows.height, rows)
            if rows.height:
                return test, lines, rows
            unlike = max(unlike, lines)
    return None, unlike, pl.DataFrame()


def _old(text: bytes, begin: int, end: int) -> pl.DataFrame:
    rows = [list(map(float, match.groups(default=b"nan"))) for match in _OLD.finditer(text, begin, end)]
    table = pl.DataFrame(rows, schema=dict.fromkeys(_OLD.groupindex, pl.Float64), orient="row")
    return table.select(column for column in table if not column.is_nan().any())


def alike(text: bytes, begin: int, end: int, layout: str) -> pl.DataFrame | None:
    """The numbers of all lines in ``text[begin:end]``, as columns of the layout's names.

    ``None`` where one line is not like ``layout``, or the last lacks its line feed.
    """
    names = [name for _, name, _, _ in string.Formatter().parse(layout) if name]
    words = layout.format_map(dict.fromkeys(names, "")).encode() + b"\n"
    between = []
    for piece in _pieces(text, begin, end):
        found = piece.translate(None, _NUMERALS)
        lines = len(found) // len(words)
        if found != words * lines:
            return None
        numeral = np.frombuffer(piece.translate(_IS_NUMERAL), dtype=np.bool_)
        if np.count_nonzero(numeral[:-1] > numeral[1:]) != lines * len(names):
            return None  # a number in the midst of a word
        between.append(piece.translate(_COMMAS, _WORDS))
    line = layout.format_map({name: f"{at}" for at, name in enumerate(names)}).encode()
    fields = line.translate(_COMMAS, _WORDS).decode().split(",")
    columns = [at for at, field in enumerate(fields) if field]
    try:
        table = pl.read_csv(
            b"".join(between),
            has_header=False,
            columns=columns,
            schema={f"{at}": pl.Float64 if at in columns else pl.String for at in range(len(fields))},
            quote_char=None,
        )
    except (pl.exceptions.ComputeError, pl.exceptions.SchemaError):  # two points in a number, or nothing else
        return None
    whole = table.select(pl.all_horizontal(pl.all().is_finite().all() & (pl.all().null_count() == 0))).item()
    return table.rename(dict(zip(table.columns, names, strict=True))) if whole else None


def _pieces(text: bytes, begin: int, end: int) -> Iterator[bytes]:
    """Whole lines, of about ``_PIECE`` bytes: what is made of these stays in the processor's cache."""
    while begin < end:
        until = text.rfind(b"\n", begin, min(begin + _PIECE, end)) + 1 or end
        yield text[begin:until]
        begin = until


def each(body: bytes, layout: str) -> tuple[int, pl.DataFrame]:
    """How many lines begin like ``layout``; and those that are like it to their end, as a frame of its names.

    Lines and layout are split at the same blanks, so a CSV reader finds the numbers, and whatever stands in a place
    of the layout that has no name must be the word that the layout has there.
    """
    form = _form(layout)
    table = pl.read_csv(
        io.BytesIO(form.first + body.translate(_BLANKS)),
        has_header=False,
        separator=" ",
        quote_char=None,
        schema=form.schema,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    ).slice(1)
    return table.select(form.begun).item(), table.filter(form.like).select(*form.numbers).filter(form.finite)


class _Form(NamedTuple):
    """A layout for ``each``: the first line of its CSV, which says how many columns there are; and what of each line.

    ``begun``: how many begin like it; ``like``: which are like it, but for ``numbers``, which must be ``finite``.
    """

    first: bytes
    schema: dict[str, type[pl.DataType]]
    begun: pl.Expr
    like: pl.Expr
    numbers: list[pl.Expr]
    finite: pl.Expr


@cache
def _form(layout: str) -> _Form:
    """Kept: of few lines, making expressions takes as long as all else."""
    first = layout.replace("{t}s", "{t}").encode().translate(_BLANKS)
    words = first.decode().split(" ")
    names = {f"c{at}": word.strip("{}") for at, word in enumerate(words) if word.startswith("{")}
    schema: dict[str, type[pl.DataType]] = {
        f"c{at}": pl.Float64 if f"c{at}" in names and word != "{t}" else pl.String for at, word in enumerate(words)
    }
    same = [pl.col(f"c{at}") == word for at, word in enumerate(words) if word and f"c{at}" not in names]
    time = next(column for column, name in names.items() if name == "t")
    seconds = pl.col(time).str.strip_suffix("s").cast(pl.Float64, strict=False)
    return _Form(
        first + b" rest\n",
        {**schema, "rest": pl.String},
        ((pl.col("c0") == "[") & (pl.col("c3") != "queue")).sum(),  # see --rate
        pl.all_horizontal(*same, pl.col("rest").fill_null("") == "", pl.col(time).str.ends_with("s")),
        [(seconds if column == time else pl.col(column)).alias(name) for column, name in names.items()],
        pl.all_horizontal(pl.all().is_finite().fill_null(value=False)),
    )


# The histogram of latencies that sysbench prints with ``--histogram``, between its intervals and its closing block.
#
# Source: ``src/sb_histogram.c`` of sysbench 1.0.20, and what it prints. It has 1024 buckets, in even steps of
# logarithms from 0.001 ms to 100 s; a latency is counted in the bucket whose value is nearest, in logarithms, and the
# first and the last also take all beyond. Buckets without latencies are left out. A line has its bucket's value to
# three decimals of a millisecond, which below 0.03 ms is that of several buckets: where not all of these are there,
# it can't be told which are, and they become one bin.

BEGIN = b"\nLatency histogram (values are in milliseconds)\n"
LONGEST = 1 << 17
"""Bytes; 1024 lines of 70."""

_LINE = re.compile(rb" *(\d+\.\d{3}) \|\** +(\d{1,15})\n")
Edges = tuple[float, float]

_BUCKETS = 1024
_LEAST, _MOST = 1e-6, 100.0  # s


def read_histogram(block: bytes, metric: str) -> tuple[pl.DataFrame, int]:
    """``HISTOGRAM_COLUMNS`` of the lines in ``block``, in s; and how many of its lines can't be read.

    ``block`` begins with ``BEGIN``, or is empty. A line without its line feed is cut short.
    """
    _, *lines = block[len(BEGIN) :].splitlines(keepends=True) or [b""]  # without the heading
    counts: dict[bytes, list[int]] = {}
    damaged = 0
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is not None and found[1] in _bins():
            counts.setdefault(found[1], []).append(int(found[2]))
        elif line.strip():
            damaged += 1
    rows = []
    for value, lines_of_value in counts.items():
        bins = _bins()[value]
        if len(bins) != len(lines_of_value):  # not all are there, so which are can't be told
            bins, lines_of_value = [(bins[0][0], bins[-1][1])], [sum(lines_of_value)]
        rows += [(None, metric, *edges, count) for edges, count in zip(bins, lines_of_value, strict=True)]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row").sort("lower"), damaged


@cache
def _bins() -> dict[bytes, list[Edges]]:
    """A bucket's value as it is printed → the edges in s of the buckets that are printed like that, ascending."""
    step = np.log(_MOST / _LEAST) / (_BUCKETS - 1)
    values = _LEAST * np.exp(np.arange(_BUCKETS) * step)
    edges = _LEAST * np.exp((np.arange(_BUCKETS + 1) - 0.5) * step)
    edges[0] = 0.0
    each = zip(values.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return grouped((b"%.3f" % (value * 1e3), (lower, upper)) for value, lower, upper in each)


# The block with which sysbench closes: of 1.0 and 1.1, and of 0.4 and 0.5, whose latencies have units beside them.
#
# Source: what text.py names; ``sb_timer.c``, ``tests/oltp/sb_oltp.c`` and ``tests/fileio/sb_fileio.c`` of 0.4.12 and
# 0.5, whose ``sb_print_value_size`` counts in 1024s: their ``Mb`` are MiB.

NUMBER = rb"(\d+(?:\.\d+)?)"

_CLOSED: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rb"^ +" + pattern, re.MULTILINE)
    for name, pattern in {
        "queries.read": rb"read: +(\d+)$",
        "queries.write": rb"write: +(\d+)$",
        "queries.other": rb"other: +(\d+)$",
        "transactions": rb"transactions: +(\d+) +\(",
        "tps": rb"transactions: +\d+ +\(" + NUMBER + rb" per sec",
        "queries": rb"(?:queries: +(?=\d+ +\()|total: +(?=\d+$))(\d+)",
        "qps": rb"queries: +\d+ +\(" + NUMBER + rb" per sec",
        "eps": rb"events(?: per second|/s \(eps\)): +" + NUMBER + rb"$",
        "errors": rb"(?:ignored errors|deadlocks): +(\d+) +\(",
        "reconnects": rb"reconnects: +(\d+) +\(",
        "read.iops": rb"(?:reads/s: +|read:  IOPS=)" + NUMBER + rb"(?: |$)",
        "write.iops": rb"(?:writes/s: +|write: IOPS=)" + NUMBER + rb"(?: |$)",
        "fsync.rate": rb"(?:fsyncs/s: +|fsync: IOPS=)" + NUMBER + rb"$",
        "read.mib": rb"(?:read, MiB/s: +|read:  IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "write.mib": rb"(?:written, MiB/s: +|write: IOPS=[\d.]+ )" + NUMBER + rb"(?: MiB/s |$)",
        "time": rb"(?:total time|time elapsed): +" + NUMBER + rb"s$",
        "events": rb"total number of events: +(\d+)$",
        "latency.sum": rb"sum: +" + NUMBER + rb"$",
        "threads.events.mean": rb"events \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.events.stddev": rb"events \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
        "threads.time.mean": rb"execution time \(avg/stddev\): +" + NUMBER + rb"/",
        "threads.time.stddev": rb"execution time \(avg/stddev\): +[\d.]+/" + NUMBER + rb"$",
    }.items()
}
_ALWAYS = ("latency.min", "latency.mean", "latency.max", "latency.sum")
_BUT_OF_FILEIO = ("time", "events", "threads.events.mean", "threads.time.mean", "threads.time.stddev")
_ALIKE, _ROUNDED = 0.05, 0.005
_OF: dict[str, tuple[str, ...]] = {
    "oltp": ("transactions", "tps", "queries"),
    "fileio": ("read.iops", "write.iops", "fsync.rate", "read.mib", "write.mib"),
}
_FILEIO = b" IOPS="  # of 1.1
_OLD_OLTP = b" read/write requests: "  # of 0.4 and 0.5, which print no rate of queries

_LATENCIES = b"\nLatency (ms):"
_LATENCY = re.compile(
    rb"^ +(?P<which>min|avg|max|(?:approx\. +)?(?P<percentile>\d{1,2}) ?(?:th)? percentile): +"
    + NUMBER
    + rb"(?P<unit>ms|s)?$",
    re.MULTILINE,
)
_OLD_SUM = re.compile(rb"^ +total time taken by event execution: +" + NUMBER + rb"s?$", re.MULTILINE)  # in s
_OLD_COUNTS = re.compile(rb"^Operations performed:  (\d+) Read, (\d+) Write, (\d+) Other = \d+ Total$", re.MULTILINE)
_OLD_BYTES = re.compile(rb"^Read " + NUMBER + rb"([KMGT]?)b  Written " + NUMBER + rb"([KMGT]?)b  Total ", re.MULTILINE)
_MIBS = {b"": 2.0**-20, b"K": 2.0**-10, b"M": 1.0, b"G": 2.0**10, b"T": 2.0**20}


def read_closing(block: bytes) -> tuple[dict[str, float], int]:
    """Its numbers, as far as it is whole, and of which percentile ``latency.percentile`` is; 0 where it has none.

    Times are in s, latencies in ms, rates of bytes in MiB/s.
    """
    found = ((name, pattern.search(block)) for name, pattern in _CLOSED.items())
    numbers = {name: float(match[1]) for name, match in found if match}
    old = _OLD_SUM.search(block)
    latencies = max(block.find(_LATENCIES), 0)  # 0.4 and 0.5 have other headings
    if old:
        numbers["latency.sum"] = float(old[1]) * 1e3
    percentile = 0
    for match in _LATENCY.finditer(block, latencies):
        if old and not match["unit"]:
            continue  # no version prints it so: which unit it has isn't known
        name = {b"min": "min", b"avg": "mean", b"max": "max"}.get(match["which"], "percentile")
        numbers.setdefault(f"latency.{name}", float(match[3]) * (1e3 if match["unit"] == b"s" else 1))
        percentile = percentile or int(match["percentile"] or 0)
    if numbers.get("time"):
        numbers |= _old_fileio(block, numbers["time"])
    return {name: number for name, number in numbers.items() if math.isfinite(number)}, percentile


def lacking(block: bytes, closed: Mapping[str, float], test: str) -> list[str]:
    wanted = [*_OF.get(test, ()), *(() if _FILEIO in block else _BUT_OF_FILEIO), *_ALWAYS]
    if test == "oltp" and _OLD_OLTP not in block:
        wanted.append("qps")
    return [name for name in wanted if name not in closed]


def contradicts(closed: Mapping[str, float]) -> bool:
    """Whether its rates are not its counts by its time: at checkpoints sysbench counts again, and its time goes on."""
    read, write, fsync, time = (closed.get(name, 0.0) for name in ("read.iops", "write.iops", "fsync.rate", "time"))
    rates = [(closed.get("tps"), 0.0, "transactions"), (closed.get("eps"), 0.0, "events")]
    rates.append((read + write or None, fsync, "events"))  # fsyncs are events since 1.0
    return any(
        rate is not None
        and closed.get(count)
        and not rate * time * (1 - _ALIKE) - 1 <= closed[count] <= (rate + more + _ROUNDED) * time * (1 + _ALIKE) + 1
        for rate, more, count in rates
        if time
    )


def is_consistent(closed: Mapping[str, float]) -> bool:
    """Whether its parts are of one run: all latencies by their number are the mean, transactions are events but for
    errors, and so are those of all threads.
    """
    events, errors = closed.get("events", 0.0), closed.get("errors", 0.0)
    mean, each = closed.get("latency.mean"), closed.get("threads.events.mean")
    total, threads = closed.get("latency.sum"), round(events / each) if each else 0
    few = threads + events * 1e-3  # that ended while it counted
    return not events or (
        (mean is None or total is None or abs(total / events - mean) <= _ROUNDED * 1.01 + mean * 1e-3)
        and (each is None or abs(threads * each - events) <= few)
        and abs(closed.get("transactions", events) - events) <= errors + few
    )


def repeats(block: bytes) -> bool:
    """Whether a figure stands in it twice, and not the same each time: a line of it is of another block."""
    latencies = dict[bytes, set[bytes]]()
    for match in _LATENCY.finditer(block, max(block.find(_LATENCIES), 0)):
        latencies.setdefault(match["which"] + (match["unit"] or b""), set()).add(match[3])
    figures = (set(pattern.findall(block)) for pattern in _CLOSED.values())
    return any(len(each) > 1 for each in (*latencies.values(), *figures))


def stray(above: bytes) -> list[str]:
    return [name for name, pattern in _CLOSED.items() if pattern.search(above)]


def _old_fileio(block: bytes, time: float) -> dict[str, float]:
    counts, done = _OLD_COUNTS.search(block), _OLD_BYTES.search(block)
    rates: dict[str, float] = {}
    if counts:
        names = ("read.iops", "write.iops", "fsync.rate")
        rates |= {name: float(count) / time for name, count in zip(names, counts.groups(), strict=True)}
    if done:
        rates |= {"read.mib": float(done[1]) * _MIBS[done[2]] / time}
        rates |= {"write.mib": float(done[3]) * _MIBS[done[4]] / time}
    return rates
