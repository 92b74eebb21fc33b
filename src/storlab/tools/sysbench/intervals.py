"""The lines that sysbench prints at every report interval, as a frame.

Two readers, with the same result. ``alike`` takes lines of one layout and nothing else, as sysbench prints them to a
file: their numbers are found by what lies between them, and all else is compared with the layout in one go. Where
anything differs, ``each`` looks at every line by itself.
"""

from __future__ import annotations

import io
import re
import string
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

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
    """Of ``text[begin:end]``: which test its intervals are of, how many lines there are, and those that are whole."""
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
    """As ``each``, of lines of 0.5; what they lack is no column."""
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
