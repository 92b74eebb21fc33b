"""Lines of fio's logs as frames: a whole small log, or a large one in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from storlab.errors import ParseError

DIRECTIONS = ("read", "write", "trim")
CHUNK = 8 << 20  # bytes: about 400,000 lines; larger chunks are no faster
_SCHEMA = {"time": pl.Int64(), "value": pl.Int64(), "direction": pl.Int8(), "size": pl.Int64()}


def read_lines(path: Path) -> pl.DataFrame:
    """The whole log: ``time`` (ms), ``value``, ``direction``, ``size`` (bytes; 0 in averaged logs)."""
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *chunks(path)])


def chunks(path: Path, size: int = CHUNK) -> Iterator[pl.DataFrame]:
    """The log in frames of about ``size`` bytes of text each, in the file's order.

    A last line without its end, as a killed fio leaves it, is left out. Raises ``ParseError`` with the line's
    number for any other line that isn't of a log.
    """
    before = 0
    rest = b""
    # Not pl.scan_csv: it maps the file, whose pages then count as this process's memory.
    with path.open("rb") as file:
        while block := file.read(size):
            cut = block.rfind(b"\n") + 1
            if not cut:
                rest += block
                continue
            text = rest + block[:cut] if rest else memoryview(block)[:cut].tobytes()
            rest = block[cut:]
            frame = _parse(text, path, before)
            before += frame.height
            yield frame


def _parse(text: bytes, path: Path, before: int) -> pl.DataFrame:
    # Offset, priority, and what later versions add; named, because Polars wants the file's width.
    unused = max(text[: text.find(b"\n") + 1].count(b",") - 3, 0)
    try:
        frame = pl.read_csv(
            text,
            has_header=False,
            schema=_SCHEMA | {f"unused {index}": pl.String() for index in range(unused)},
            columns=[0, 1, 2, 3],
            truncate_ragged_lines=True,
            quote_char=None,
        )
    except pl.exceptions.PolarsError:
        raise _first_wrong(text, path, before) from None
    doubtful = frame.select(
        pl.any_horizontal(pl.all().has_nulls(), pl.all().min() < 0, pl.col("direction").max() >= len(DIRECTIONS))
    )
    if doubtful.item():
        raise _first_wrong(text, path, before)
    return frame


def _first_wrong(text: bytes, path: Path, before: int) -> ParseError:
    for number, line in enumerate(text.splitlines(), start=before + 1):
        fields = [field.strip() for field in line.split(b",")]
        if len(fields) < 4 or not all(field.isdigit() for field in fields[:4]) or int(fields[2]) > 2:
            shown = line[:60].decode(errors="replace")
            return ParseError(f"not a line of a fio log: {shown!r}", str(path), number)
    return ParseError("not a fio log", str(path), before + 1)
