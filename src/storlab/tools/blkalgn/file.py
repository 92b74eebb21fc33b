"""blkalgn's JSON, read: its four dialects, told apart by what is in them.

    1  the Python version: ``{"Block size": {"12": n}, "Algn size": {"12": n}}``, keys are log2 of bytes, both
    2  libbpf, early:      ``{"disks": {"vda": {"granularity": {"8": n}, "alignment": {"12": n}}}}``, sectors and log2
    3  libbpf, later:      the same, both keyed in bytes
    4  libbpf, for a time: as 3, with 512 added to every key of a granularity, so that 4 KiB stands as ``4608``

1 has names of its own. Of the others 2 has an alignment of at most 62 (log2), 3 and 4 have one of at least 512 (bytes).
3 and 4 are told apart by what can be: a request is never more aligned than its length is. If 27 requests are aligned
to 4 KiB, then at least 27 have a length that 4 KiB divides; where that fails in one reading, the file isn't in that
dialect. These versions put every request that they see into both histograms, so the test is exact. It can fail to
decide: where no request is aligned to more than 512 bytes, both readings can be. Then the file is refused
rather than guessed at, and its reader says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from storlab.blockio.requests import FLOOR, DiskHistograms
from storlab.errors import ParseError
from storlab.tools.blkalgn.documents import Counted, Raw, read_counted

Dialect = Literal[1, 2, 3, 4]
DIALECTS: dict[Dialect, str] = {
    1: "of the Python version, keys are log2 of bytes",
    2: "of an early libbpf version, lengths in sectors and alignments as log2 of bytes",
    3: "of a libbpf version with keys in bytes",
    4: "of a libbpf version that adds 512 bytes to every length",
}
_MOST = 1 << 62
_MOST_BYTES = 1 << 60
"""In one file: years of any machine's; of several files, sums stay below 2^63."""
_LAST_SLOT = frozenset(16383 << shift for shift in range(9, 17))
"""Bytes: libbpf versions put all longer requests here too; so of these lengths any alignment can be."""

_TOLERATED = 0.01  # of all requests may contradict a reading, where none is without contradiction


@dataclass(frozen=True)
class BlkalgnFile:
    """What one file held, in bytes, whatever its dialect was. ``warnings`` are sentences for the reader.

    ``documents``: so many stood in it, and this is the last.
    """

    dialect: Dialect
    disks: Mapping[str, DiskHistograms]
    warnings: tuple[str, ...] = ()
    documents: int = 1


def read_blkalgn(text: bytes, source: str = "", dialect: Dialect | None = None) -> BlkalgnFile:
    """A file of blkalgn's. ``dialect`` says what it is where its content does not; it must fit all the same.

    Raises ``ParseError`` with the line or the key, where it is no such file or its dialect can't be told.
    """
    try:
        return _read(read_counted(text, source), dialect)
    except ValueError as error:
        raise ParseError(str(error), source) from None


def _read(counted: Counted, wanted: Dialect | None) -> BlkalgnFile:
    disks = counted.disks
    if wanted is not None and (wanted == 1) != counted.python:
        keys = "dialect 1" if counted.python else "dialects 2 to 4"
        raise ValueError(f"is not of dialect {wanted}: it has the keys of {keys}")
    dialect, warnings = (wanted, ()) if wanted is not None else (1, ()) if counted.python else _told_apart(disks)
    read = {name: interpreted(raw, dialect, name) for name, raw in disks.items()}
    if sum(length * count for disk in read.values() for length, count in disk.granularity.items()) > _MOST_BYTES:
        raise ValueError("can't be: its requests have more than an exbibyte")
    return BlkalgnFile(dialect, read, (*counted.warnings, *warnings, *_warnings(dialect, read)), counted.documents)


def interpreted(raw: Raw, dialect: Dialect, disk: str) -> DiskHistograms:
    """The counts of one disk as this dialect means them. Raises ``ValueError`` that names the key which can't be.

    The libbpf versions count a request without data as aligned to 512 bytes; here it has no alignment.
    """
    lengths = _converted(raw["granularity"], f"{disk}: the length", _LENGTH[dialect])
    alignments = _converted(raw["alignment"], f"{disk}: the alignment", _ALIGNMENT[dialect])
    without = lengths.pop(0, 0)
    alignments.pop(0, None)
    if dialect != 1 and without and FLOOR in alignments:
        alignments[FLOOR] = max(alignments[FLOOR] - without, 0)
        if not alignments[FLOOR]:
            del alignments[FLOOR]
    return DiskHistograms(lengths, alignments, without, exact=dialect != 1)


def _log2(key: int) -> int | None:
    return 0 if key == 0 else 1 << key if 9 <= key <= 62 else None


def _power(key: int) -> int | None:
    return key if key >= FLOOR and key.bit_count() == 1 else None


_LENGTH: dict[Dialect, Callable[[int], int | None]] = {
    1: _log2,
    2: lambda key: key * FLOOR if key * FLOOR <= _MOST else None,
    3: lambda key: key if key % FLOOR == 0 else None,
    4: lambda key: key - FLOOR if key % FLOOR == 0 and key >= FLOOR else None,
}
_ALIGNMENT = {1: _log2, 2: lambda key: _log2(key) or None, 3: _power, 4: _power}


def _converted(counts: Mapping[int, int], where: str, convert: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, count in counts.items():
        size = convert(key)
        if size is None:
            raise ValueError(f"{where} {key} can't be in this dialect")
        found[size] = found.get(size, 0) + count
    return dict(sorted(found.items()))


def unexplained(histograms: DiskHistograms) -> int:
    """How many requests have an alignment that no length accounts for. 0 where both can be of the same requests."""
    worst, aligned, able = 0, 0, 0
    lengths = sorted(((_ability(length), n) for length, n in histograms.granularity.items()), reverse=True)
    for alignment, count in sorted(histograms.alignment.items(), reverse=True):
        aligned += count
        while lengths and lengths[0][0] >= alignment:
            able += lengths.pop(0)[1]
        worst = max(worst, aligned - able)
    return worst


def _ability(length: int) -> int:
    """The most that a request of this length can be aligned to."""
    return _MOST if length in _LAST_SLOT else length & -length


def _told_apart(disks: Mapping[str, Raw]) -> tuple[Dialect, tuple[str, ...]]:
    """Which of 2, 3 and 4 it is, with a warning where that rests on nearly all instead of all requests."""
    possible: dict[Dialect, int] = {}
    reasons: dict[Dialect, str] = {}
    total = sum(count for raw in disks.values() for count in raw["alignment"].values())
    for dialect in (2, 3, 4):
        try:
            possible[dialect] = sum(unexplained(interpreted(raw, dialect, name)) for name, raw in disks.items())
        except ValueError as error:
            reasons[dialect] = str(error)
    if not possible:
        raise ValueError(f"is of none of the dialects 2, 3 and 4: {'; '.join(dict.fromkeys(reasons.values()))}")
    for most in (0, int(total * _TOLERATED)):
        fitting = [dialect for dialect, number in possible.items() if number <= most]
        if len(fitting) > 1:
            raise ValueError(_ambiguous(disks, fitting))
        if fitting:
            left = possible[fitting[0]]
            said = f"{left} of {total} requests are more aligned than any length allows: was it written meanwhile?"
            return fitting[0], (said,) if left else ()
    (dialect, number), *_ = sorted(possible.items(), key=lambda item: item[1])
    raise ValueError(
        f"contradicts itself in every dialect: even in dialect {dialect} {number} of {total} requests are more aligned "
        "than any length allows; say which it is (--dialect) if it is to be read all the same"
    )


def _ambiguous(disks: Mapping[str, Raw], fitting: list[Dialect]) -> str:
    name, raw = next((name, raw) for name, raw in disks.items() if raw["granularity"])
    key = max(raw["granularity"])
    meanings = [f"dialect {dialect}, where it means {_LENGTH[dialect](key)} bytes" for dialect in fitting]
    return (
        f"does not show which dialect it is of: the length {key} of {name} may be of {' or of '.join(meanings)}, and "
        f"no alignment contradicts either; say which it is: --dialect {' or --dialect '.join(map(str, fitting))}"
    )


def _warnings(dialect: Dialect, disks: Mapping[str, DiskHistograms]) -> list[str]:
    said = []
    if dialect == 1:
        said.append(
            "the Python version of blkalgn knows no alignment below 4 KiB nor above 512 KiB, and reports too much of "
            "it on disks with blocks of 512 bytes; lengths are only known to a power of two"
        )
        without = sum(disk.without_data for disk in disks.values())
        if without:
            said.append(f"the alignments also count {without} requests without data (flushes)")
    elif any(length in _LAST_SLOT for disk in disks.values() for length in disk.granularity):
        said.append("requests of 8 MiB and more all stand as the longest length that blkalgn knows")
    for name, disk in disks.items():
        aligned = sum(disk.alignment.values())
        if dialect != 1 and aligned != disk.total:
            said.append(f"{name}: {disk.total} lengths and {aligned} alignments are not of the same requests")
    return said


def blkalgn_json(disks: Mapping[str, DiskHistograms], further: Mapping[str, object] | None = None) -> bytes:
    """``{"disks": {"vda": {"granularity": {"4096": 27}, "alignment": {"4096": 27}}}}``, as scripts read it.

    Requests without data are in neither, so nothing that is no write counts as one of 512 bytes' alignment.
    ``further``: keys beside ``disks``, over which readers of blkalgn's format pass.
    """

    def keyed(counts: Mapping[int, int]) -> dict[str, int]:
        return {str(value): counts[value] for value in sorted(counts)}

    both = {disk: {"granularity": keyed(x.granularity), "alignment": keyed(x.alignment)} for disk, x in disks.items()}
    return orjson.dumps({"disks": both, **(further or {})}, option=orjson.OPT_INDENT_2) + b"\n"
