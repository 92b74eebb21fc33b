"""fio's logs as ``log_store_compressed`` leaves them (``NAME.log.fz``): zlib streams one after the other, of samples.

Source: fio, ``iolog.h`` (``struct io_sample``) and ``iolog.c`` (``iolog_file_inflate``). A sample is what fio has in
memory, and which of its layouts that is, is not said: they changed with 3.8 and 3.38. So it is told by what fits all
samples of the first chunk. The upper bits of a sample's direction say whether offset and time of issue follow it.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from storlab.errors import ParseError

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
        with path.open("rb") as file:
            try:
                while packed := file.read(chunk):
                    while packed:
                        yield unpack.decompress(packed, chunk)
                        self.open = not unpack.eof
                        packed = unpack.unconsumed_tail if self.open else unpack.unused_data
                        unpack = unpack if self.open else zlib.decompressobj(_ANY_HEADER)
                yield unpack.flush()
            except zlib.error as error:
                raise ParseError(f"can't be unpacked, it is damaged: {error}", str(path)) from None


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
    return bool(
        ((samples["direction"] ^ flags) < _DIRECTIONS).all()
        and (flags == flags[:1]).all()
        and not (one and samples["second"].any())
        and all(
            (samples[name] < most).all() for name, most in (("time", LONGEST + 1), ("value", _MOST), ("size", _MOST))
        )
    )
