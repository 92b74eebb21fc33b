"""Lines of fio's logs, in chunks.

They are parsed by NumPy, all lines of a chunk at once. That takes less time than Polars' reader of CSV, and 40 MB less:
so much is what of its engine a reader of CSV brings into memory, however small the file.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from storlab.base.errors import ParseError
from storlab.base.reading import open_file
from storlab.percentiles import Ints

LONGEST = 100 * 86_400_000
"""ms; the longest time that is taken for one since the run began. Unix time is far beyond."""
IS_PACKED = "are packed by fio (log_store_compressed): unpack each, fio --inflate-log=FILE.fz > FILE"

DIRECTIONS = ("read", "write", "trim")
T = TypeVar("T")
CHUNK = 1 << 18  # bytes: about 13,000 lines; what is made of them fits the processor's cache
_FIELDS = ("time", "value", "direction", "size")
_COMMA, _NEWLINE, _BLANK = b",\n "
_ZERO = np.uint8(ord("0"))
_LONGEST_LINE = 64 * 1024  # a histogram has 1,856 numbers and more
_MOST_DIGITS = 18  # whatever they are, the number has 64 bits
_NUMBER = rb" ?\d{1,18}"
_LINE = re.compile(rb"(?P<time>%b),%b,(?P<direction>%b),%b(,|$)" % ((_NUMBER,) * 4))  # what _parse takes


@dataclass(frozen=True)
class Lines:
    """Columns of a log's lines: ``time`` (ms), ``value``, ``direction``, ``size`` (bytes; 0 in averaged logs)."""

    time: Ints
    value: Ints
    direction: Ints
    size: Ints


def map_chunks(path: Path, reduce: Callable[[Lines], T], size: int = CHUNK, longest: int = LONGEST) -> Iterator[T]:
    """What ``reduce`` makes of each chunk of the log (of about ``size`` bytes of text), in the file's order.

    Memory doesn't depend on the file. A last line without its end, as a killed fio leaves it, is left out. Raises
    ``ParseError`` with the line's number for any other line that isn't of a log, or whose time is beyond ``longest``
    ms.
    """
    # Not in threads: on two busy cores they gained nothing, the operations on a chunk of this size being so short.
    return (reduce(_parse(text, path, offset, longest)) for text, offset in texts(path, size))


def packed_logs(folder: Path, prefix: str) -> list[Path]:
    """Logs that fio packed, in whichever layout of its memory, which only the fio that wrote them knows."""
    return list(folder.glob(f"{glob.escape(prefix)}_*.log.fz"))


def is_cut(path: Path) -> bool:
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        return file.read(1) not in (b"", b"\n")


def texts(path: Path, size: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines of the file, about ``size`` bytes at a time, and where in the file they begin.

    Raises ``ParseError`` where it has no lines, as a disk image by the name of a log.
    """
    with open_file(path) as file:
        rest, offset = b"", 0
        while block := file.read(size):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            if cut:
                yield block[:cut], offset
            rest = block[cut:]
            offset += cut
            if len(rest) > _LONGEST_LINE:
                raise ParseError(f"not a line of a fio log: it has more than {_LONGEST_LINE} bytes", str(path))


def _parse(text: bytes, path: Path, offset: int, longest: int) -> Lines:
    chars = np.frombuffer(text, dtype=np.uint8)
    newline = chars == _NEWLINE
    separators = np.flatnonzero((chars == _COMMA) | newline)
    width = text.count(b",", 0, text.find(b"\n")) + 1
    lines = int(np.count_nonzero(newline))
    if width < len(_FIELDS) or separators.size != lines * width or not newline[separators[width - 1 :: width]].all():
        raise _first_wrong(text, path, offset, longest)
    ends = np.ascontiguousarray(separators.reshape(lines, width).T)
    digits = chars - _ZERO
    start = np.concatenate([[0], ends[-1, :-1] + 1])
    columns = []
    for end in ends[: len(_FIELDS)]:
        start += chars.take(start) == _BLANK
        column = _numbers(digits, start, end)
        if column is None:
            raise _first_wrong(text, path, offset, longest)
        columns.append(column)
        start = end + 1
    time, _, direction, _ = columns
    if time.max() > longest or direction.max() >= len(DIRECTIONS):
        raise _first_wrong(text, path, offset, longest)
    return Lines(*columns)


def _numbers(digits: npt.NDArray[np.uint8], start: Ints, end: Ints) -> Ints | None:
    """The whole number written from each start up to its end; nothing if there are other characters, or none.

    ``digits``: the text less ``0``, so that all but digits are above 9.
    """
    length = end - start
    least, most = int(length.min()), int(length.max())
    if least < 1 or most > _MOST_DIGITS:
        return None
    number: npt.NDArray[np.signedinteger] = np.zeros(length.size, dtype=np.int32 if most < 10 else np.int64)
    for at in range(least):
        digit = digits[at:].take(start)
        if digit.max() > 9:
            return None
        number *= 10
        number += digit
    longer = np.flatnonzero(length > least)
    for at in range(least, most):
        digit = digits[at:].take(start.take(longer))
        if digit.max() > 9:
            return None
        number[longer] = number.take(longer) * 10 + digit
        longer = longer.compress(length.take(longer) > at + 1)
    return number.astype(np.int64)


def table(text: bytes) -> Ints | None:
    chars = np.frombuffer(text, dtype=np.uint8)
    newline = chars == _NEWLINE
    ends = np.flatnonzero((chars == _COMMA) | newline)
    lines, width = int(np.count_nonzero(newline)), text.count(b",", 0, text.find(b"\n")) + 1
    if ends.size != lines * width or not newline[ends[width - 1 :: width]].all():
        return None
    start = np.concatenate([[0], ends[:-1] + 1])
    start += chars.take(start) == _BLANK
    numbers = _numbers(chars - _ZERO, start, ends)
    return None if numbers is None else numbers.reshape(lines, width)


def lines_before(path: Path, offset: int) -> int:
    with open_file(path) as file:
        return sum(1 for _ in takewhile(lambda _: file.tell() <= offset, iter(file.readline, b"")))


def _first_wrong(text: bytes, path: Path, offset: int, longest: int = LONGEST) -> ParseError:
    before = lines_before(path, offset)
    lines = text.splitlines()
    for number, line in enumerate(lines, start=before + 1):
        wanted = _LINE.match(line)
        if wanted is None or line.count(b",") != lines[0].count(b",") or int(wanted["direction"]) >= len(DIRECTIONS):
            shown = line[:60].decode(errors="replace")
            return ParseError(f"not a line of a fio log: {shown!r}", str(path), number)
        if int(wanted["time"]) > longest:
            return ParseError("times are Unix time: run fio without log_unix_epoch", str(path), number)
    return ParseError("not a fio log", str(path), before + 1)


# Phases of fio's jobs, which ran one after another (``stonewall``): each job's logs count from its own start.


@dataclass(frozen=True)
class Phases:
    """``of``: the phase, from 0, of each of fio's processes, in their order; ``lengths``: of the phases, in s.

    Without either, all ran at once.
    """

    of: tuple[int, ...] = ()
    lengths: tuple[float, ...] = ()

    def of_log(self, number: int) -> int:
        """The phase of the process whose logs have this number, from 1 on."""
        return self.of[number - 1] if self.of else 0

    def intervals(self, interval: float) -> Ints:
        """The phases' lengths in whole intervals of so many s."""
        return np.floor(np.array(self.lengths or (0.0,)) / interval + 0.5).astype(np.int64)


AT_ONCE = Phases()
