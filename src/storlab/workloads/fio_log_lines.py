"""Lines of fio's logs as frames: a whole small log, or a large one in chunks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import polars as pl

from storlab.errors import ParseError

DIRECTIONS = ("read", "write", "trim")
T = TypeVar("T")
_THREADS = min(4, os.cpu_count() or 1)
CHUNK = 1 << 20  # bytes: about 50,000 lines; larger chunks take more memory and are no faster
_LONGEST = 100 * 86_400_000  # ms; Unix time is far beyond, and would make as many empty intervals
_SCHEMA = {"time": pl.Int64(), "value": pl.Int64(), "direction": pl.Int8(), "size": pl.Int64()}


def read_lines(path: Path) -> pl.DataFrame:
    """The whole log: ``time`` (ms), ``value``, ``direction``, ``size`` (bytes; 0 in averaged logs)."""
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *chunks(path)])


def chunks(path: Path, size: int = CHUNK) -> Iterator[pl.DataFrame]:
    """The log in frames of about ``size`` bytes of text each, in the file's order. As ``map_chunks``."""
    return map_chunks(path, lambda frame: frame, size)


def map_chunks(path: Path, reduce: Callable[[pl.DataFrame], T], size: int = CHUNK) -> Iterator[T]:
    """What ``reduce`` makes of each chunk of the log, in the file's order.

    Chunks are parsed and reduced in threads (Polars and NumPy run outside Python's lock), few at a time: memory
    doesn't depend on the file. A last line without its end, as a killed fio leaves it, is left out. Raises
    ``ParseError`` with the line's number for any other line that isn't of a log.
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(_THREADS) as threads:
        for text, offset in _texts(path, size):
            waiting.append(threads.submit(lambda text, offset: reduce(_parse(text, path, offset)), text, offset))
            del text
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _texts(path: Path, size: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines of the file, about ``size`` bytes at a time, and where in the file they begin."""
    # Not pl.scan_csv: it maps the file, whose pages then count as this process's memory.
    with path.open("rb") as file:
        rest, offset = b"", 0
        while block := file.read(size):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            if cut:
                yield block[:cut], offset
            rest = block[cut:]
            offset += cut


def _parse(text: bytes, path: Path, offset: int) -> pl.DataFrame:
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
        raise _first_wrong(text, path, offset) from None
    if not _plausible(frame):
        raise _first_wrong(text, path, offset)
    return frame


def _plausible(frame: pl.DataFrame) -> bool:
    # Column by column: an expression over the frame takes a query's overhead for every chunk.
    if any(column.has_nulls() for column in frame):
        return False
    time, value, direction, size = (column.to_numpy() for column in frame)
    least = min(column.min(initial=0) for column in (time, value, direction, size))
    return bool(least >= 0 and time.max(initial=0) <= _LONGEST and direction.max(initial=0) < len(DIRECTIONS))


def _first_wrong(text: bytes, path: Path, offset: int) -> ParseError:
    with path.open("rb") as file:
        before = sum(1 for _ in takewhile(lambda _: file.tell() <= offset, iter(file.readline, b"")))
    for number, line in enumerate(text.splitlines(), start=before + 1):
        fields = [field.strip() for field in line.split(b",")]
        if len(fields) < 4 or not all(field.isdigit() for field in fields[:4]) or int(fields[2]) > 2:
            shown = line[:60].decode(errors="replace")
            return ParseError(f"not a line of a fio log: {shown!r}", str(path), number)
        if int(fields[0]) > _LONGEST:
            return ParseError("times are Unix time: run fio without log_unix_epoch", str(path), number)
    return ParseError("not a fio log", str(path), before + 1)
