"""Lines of fio's logs, in chunks; as text, or as ``log_store_compressed`` leaves them: zlib streams of samples.

Text is parsed by NumPy, all lines of a chunk at once. That takes as long as Polars' reader of CSV, and 40 MB less: so
much is what of its engine a reader of CSV brings into memory, however small the file.

Source of packed logs (``NAME.log.fz``): fio, ``iolog.h`` (``struct io_sample``), ``iolog.c`` (``iolog_file_inflate``).
A sample is what fio has in memory, and which of its layouts that is, is not said: they changed with 3.8 and 3.38. So it
is told by what fits all samples of the first chunk. The upper bits of a sample's direction say whether offset and time
of issue follow it.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from storlab.errors import ParseError
from storlab.percentiles import Ints
from storlab.reading import open_file

ENDING = ".fz"
LONGEST = 100 * 86_400_000
"""ms; the longest time that is taken for one since the run began. Unix time is far beyond."""

_UNPACK_BY_FIO = "unpack it by the fio that wrote it (fio --inflate-log=FILE.fz > FILE)"
_ANY_HEADER = 47  # zlib's, or gzip's
_WORD = 8
_FLAGS = 0xF000_0000
_OFFSET, _TWO_VALUES, _ISSUE_TIME = 0x8000_0000, 0x2000_0000, 0x1000_0000
_MOST = 1 << 62
_DIRECTIONS = 3
_LAYOUTS = (  # where the direction is, where the size, how large that is, and the whole: the newest that fits counts
    (24, 32, 8, 40),  # since 3.38: a second value, which is 0 unless a flag says otherwise
    (16, 24, 8, 32),  # since 3.8: sizes of 64 bits
    (16, 20, 4, 24),
)

Samples = npt.NDArray[np.void]
"""Fields ``time`` (ms), ``value``, ``direction`` and ``size`` (bytes)."""


def read_samples(path: Path, chunk: int) -> Iterator[Samples]:
    """The samples of the file, about ``chunk`` bytes at a time. What a cut-off file has no end of is left out.

    Raises ``ParseError`` for what zlib can't unpack, or no layout fits.
    """
    layout: np.dtype[np.void] | None = None
    for block in _blocks(path, chunk):
        layout = layout or _layout(block, path)
        samples = np.frombuffer(block, layout, len(block) // layout.itemsize)
        if not _fits(samples):
            raise ParseError(f"holds samples that no fio writes: it is damaged, or {_UNPACK_BY_FIO}", str(path))
        if samples.size:
            samples = samples.copy()
            samples["direction"] &= ~np.uint32(_FLAGS)
            yield samples


def is_cut_off(path: Path) -> bool:
    """Whether the file ends within one of its streams; not where it is damaged before that."""
    streams = _Streams()
    try:
        deque(streams.unpacked(path, 1 << 18), maxlen=0)
    except ParseError:
        return False
    return streams.open


def _blocks(path: Path, chunk: int) -> Iterator[bytes]:
    """Whole samples of whatever layout: of blocks but the last, the length is a multiple of all layouts' lengths."""
    whole = 24 * 32 * 5 * 7  # of 24, 32, 40, 48 and 56 bytes
    rest = b""
    for part in _Streams().unpacked(path, chunk):
        rest += part
        cut = len(rest) - len(rest) % whole if len(rest) >= max(chunk, whole) else 0
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


class _Streams:
    """zlib streams one after the other. ``open``: whether what was read so far ends within one."""

    open = False

    def unpacked(self, path: Path, chunk: int) -> Iterator[bytes]:
        """What was packed, at most ``chunk`` bytes at a time. Raises ``ParseError``."""
        unpack = zlib.decompressobj(_ANY_HEADER)
        with open_file(path) as file:
            try:
                while packed := file.read(chunk):
                    while packed:
                        yield unpack.decompress(packed, chunk)
                        self.open = not unpack.eof
                        packed = unpack.unconsumed_tail if self.open else unpack.unused_data
                        unpack = unpack if self.open else zlib.decompressobj(_ANY_HEADER)
                yield unpack.flush()
            except zlib.error as error:
                raise ParseError(f"damaged, cannot be unpacked: {error}", str(path)) from None


def _layout(block: bytes, path: Path) -> np.dtype[np.void]:
    """That of the samples: the newest of those that fit them, if possible without a rest."""
    layouts = []
    for direction, size, size_bytes, base in _LAYOUTS:
        flags = int.from_bytes(block[direction : direction + 4], "little")
        length = base + _WORD * (bool(flags & _OFFSET) + bool(flags & _ISSUE_TIME))
        fields = {"time": ("<u8", 0), "value": ("<u8", _WORD), "direction": ("<u4", direction)}
        fields["size"] = (f"<u{size_bytes}", size)
        if direction > 2 * _WORD:
            fields["second"] = ("<u8", 2 * _WORD)
        layout = _dtype(fields, length)
        if len(block) >= length and _fits(np.frombuffer(block, layout, len(block) // length)):
            layouts.append(layout)
    if not layouts:
        raise ParseError(f"holds samples in a form that isn't known: {_UNPACK_BY_FIO}", str(path))
    return next((layout for layout in layouts if len(block) % layout.itemsize == 0), layouts[0])


def _dtype(fields: Mapping[str, tuple[str, int]], length: int) -> np.dtype[np.void]:
    formats, offsets = zip(*fields.values(), strict=True)
    described: Any = {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": length}
    found: np.dtype[np.void] = np.dtype(described)
    return found


def _fits(samples: Samples) -> bool:
    flags = samples["direction"] & np.uint32(_FLAGS)
    one = "second" in (samples.dtype.names or ()) and not (flags[:1] & np.uint32(_TWO_VALUES)).any()
    alike = ((samples["direction"] ^ flags) < _DIRECTIONS).all() and (flags == flags[:1]).all()
    limits = {"time": LONGEST + 1, "value": _MOST, "size": _MOST}
    within = all((samples[name] < most).all() for name, most in limits.items())
    return bool(alike and within and not (one and samples["second"].any()))


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
    ms. A log that fio packed is read as well.
    """
    if path.name.endswith(ENDING):
        return (
            reduce(Lines(*(samples[name].astype(np.int64) for name in _FIELDS))) for samples in read_samples(path, size)
        )
    # Not in threads: on two busy cores they gained nothing, the operations on a chunk of this size being so short.
    return (reduce(_parse(text, path, offset, longest)) for text, offset in texts(path, size))


def is_cut(path: Path) -> bool:
    """Whether the log ends within a line, or within what fio packed."""
    if path.name.endswith(ENDING):
        return is_cut_off(path)
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
    """All numbers of whole lines, a row for each line; nothing where lines differ in length, or have anything else."""
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
    """How many lines of the file end before this place of it."""
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
