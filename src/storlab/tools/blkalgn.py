"""blkalgn's JSON: histograms of lengths and alignments, in four dialects that are told apart by what is in them.

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

A file holds one document, or several, as ``storlab trace --json --interval`` prints them: each counts all since the
start, so the last one is all that there is to know. One that does not go on from the one before is of another trace.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import orjson
import polars as pl

from storlab.base.errors import ParseError
from storlab.base.units import shown, size_text
from storlab.blockio.requests import FLOOR, UNITS, DiskHistograms
from storlab.measurements import HISTOGRAM_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.tools.importer import Importer, Part

UNKNOWN_DISK = "unknown"
"""What the disk is called in dialect 1, which does not name it."""

Raw = dict[str, dict[int, int]]  # "granularity", "alignment" → key as written → count

_KINDS = ("granularity", "alignment")
_MOST_KEY = 1 << 62
_MOST_REQUESTS = 1 << 50
"""In one file: years of any machine's; of several files, sums stay below 2^63."""
_TAKEN_BACK = 0.01  # of all counts: what is requeued counts no more until it is issued again
_BEGIN = re.compile(r"\S")


@dataclass(frozen=True)
class Counted:
    """What the last document of a file holds, the how many-th that is, and whether it has the Python version's keys."""

    disks: Mapping[str, Raw]
    python: bool
    documents: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(sum(counts.values()) for raw in self.disks.values() for counts in raw.values())


def read_counted(text: bytes, source: str = "") -> Counted:
    """Raises ``ParseError`` where it is no JSON, and ``ValueError`` with the key where it is none of blkalgn's."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refusal = ParseError(f"is no JSON: {error.msg}", source, error.lineno)
        counted = _last_of_several(text.decode(errors="replace"), refusal)
    else:
        counted = _counted(document)
    if not counted.total:
        raise ValueError("holds not one request")
    return counted


def _last_of_several(text: str, refusal: ParseError) -> Counted:
    decoder, at = json.JSONDecoder(), 0
    last: Counted | None = None
    while begin := _BEGIN.search(text, at):
        if begin[0] != "{":
            raise refusal
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            if last is None:
                raise refusal from None
            return replace(last, warnings=("its last document is cut off, and left out",))
        counted = _counted(document)
        last = counted if last is None else _going_on(last, counted)
    if last is None or last.documents == 1:
        raise refusal
    return last


def _going_on(before: Counted, after: Counted) -> Counted:
    """``after``, one document on. Raises ``ValueError`` where it has less of anything than there was before."""
    number = before.documents + 1
    kinds = ((raw[kind], after.disks.get(disk, {}).get(kind, {})) for disk, raw in before.disks.items() for kind in raw)
    less = sum(max(count - now.get(key, 0), 0) for counts, now in kinds for key, count in counts.items())
    if less > _TAKEN_BACK * after.total:
        said = f"its document {number} does not continue the one before: each trace needs its own file"
        raise ValueError(said)
    return replace(after, documents=number)


def _counted(document: object) -> Counted:
    if not isinstance(document, dict):
        raise ValueError("is no histogram of blkalgn: there is no object with a key disks, Block size or Algn size")
    python = "Block size" in document or "Algn size" in document
    if python == ("disks" in document):
        has = "both a key disks and" if python else "neither a key disks nor"
        raise ValueError(f"is no histogram of blkalgn: it has {has} one of Block size, Algn size")
    if not python:
        return Counted(_raw_disks(document["disks"]), python)
    names = zip(_KINDS, ("Block size", "Algn size"), strict=True)
    return Counted({UNKNOWN_DISK: {kind: _counts(document.get(name, {}), name) for kind, name in names}}, python)


def _raw_disks(disks: object) -> dict[str, Raw]:
    if not isinstance(disks, dict):
        raise ValueError(f"disks: {shown(disks)} is no object with the names of disks")
    found: dict[str, Raw] = {}
    for name, disk in disks.items():
        if not isinstance(disk, dict) or not disk.keys() & set(_KINDS):
            raise ValueError(f"disks.{shown(name)}: has neither granularity nor alignment")
        found[name] = {kind: _counts(disk.get(kind, {}), f"disks.{shown(name)}.{kind}") for kind in _KINDS}
    return found


def _counts(value: object, where: str) -> dict[int, int]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {shown(value)} is no object with a count for each size")
    found: dict[int, int] = {}
    for key, count in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 19 and int(key) <= _MOST_KEY):
            raise ValueError(f"{where}: the key {shown(key)} is not a valid size")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST_REQUESTS:
            raise ValueError(f"{where}.{key}: {shown(count)} is not a number of requests")
        if count:
            found[int(key)] = found.get(int(key), 0) + count
    return found


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
    lengths = sorted(
        ((_MOST if length in _LAST_SLOT else length & -length, n) for length, n in histograms.granularity.items()),
        reverse=True,
    )  # the most that requests of this length can be aligned to
    for alignment, count in sorted(histograms.alignment.items(), reverse=True):
        aligned += count
        while lengths and lengths[0][0] >= alignment:
            able += lengths.pop(0)[1]
        worst = max(worst, aligned - able)
    return worst


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


OPERATION = "all"
"""Of which operations the requests were, the files don't say."""

_REQUESTS, _BYTES = MetricSpec(f"{OPERATION}.requests", "1"), MetricSpec(f"{OPERATION}.bytes", "B")
_SIZE = MetricSpec(f"{OPERATION}.size", "B", across="mean")
_BELOW = {unit: MetricSpec(f"{OPERATION}.below.{size_text(unit)}", "1", "lower", granule=unit) for unit in UNITS}
_ALIGNED = {
    unit: MetricSpec(f"{OPERATION}.aligned.{size_text(unit)}", "1", "higher", "mean", granule=unit, domain="share")
    for unit in UNITS
}
_LENGTHS = MetricSpec(f"{OPERATION}.granularity", "B", quantity="request length", subject=OPERATION)
_ALIGNMENTS = MetricSpec(f"{OPERATION}.alignment", "B", quantity="request alignment", subject=OPERATION)
METRICS = (_REQUESTS, _BYTES, _SIZE, *_BELOW.values(), *_ALIGNED.values(), _LENGTHS, _ALIGNMENTS)


class BlkalgnImporter(Importer):
    """All four dialects; ``dialect`` among the options says which it is where the file doesn't show."""

    kind: ClassVar[str] = "blkalgn"
    raw_name: ClassVar[str] = "blkalgn.json"
    primary: ClassVar[tuple[str, ...]] = (f"{OPERATION}.aligned.16k",)
    unknown: ClassVar[str] = "which operations were counted, of which load, for how long and on which machine"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        file = read_blkalgn(text, source, options.get("dialect"))
        parts: dict[str | None, DiskHistograms] = {None: _together(file.disks)}
        parts |= {disk: each for disk, each in file.disks.items() if len(file.disks) > 1}
        last = f"the last of {file.documents}, each of which counts all since the start"
        several = {"document": last} if file.documents > 1 else {}
        measured = Measurements(
            declared=METRICS,
            metrics=metric_frame(value for job, each in parts.items() for value in _values(job, each)),
            histograms=pl.concat([_bins(job, each) for job, each in parts.items()]),
            warnings=file.warnings,
            facts={"dialect": f"{file.dialect}, {DIALECTS[file.dialect]}", "disks": list(file.disks), **several},
        )
        return [Part(measured)]


def _together(disks: Mapping[str, DiskHistograms]) -> DiskHistograms:
    lengths: Counter[int] = Counter()
    alignments: Counter[int] = Counter()
    for disk in disks.values():
        lengths.update(disk.granularity)
        alignments.update(disk.alignment)
    without, exact = sum(disk.without_data for disk in disks.values()), all(disk.exact for disk in disks.values())
    return DiskHistograms(dict(sorted(lengths.items())), dict(sorted(alignments.items())), without, exact)


def _values(job: str | None, counted: DiskHistograms) -> Iterator[Value]:
    yield _REQUESTS.value(counted.total, job)
    if counted.exact and counted.total:
        size = sum(length * count for length, count in counted.granularity.items())
        yield _BYTES.value(size, job)
        yield _SIZE.value(size / counted.total, job)
    aligned = sum(counted.alignment.values())
    for unit in UNITS:
        below = sum(count for length, count in counted.granularity.items() if length < unit)
        yield _BELOW[unit].value(below, job)
        if aligned:
            share = sum(count for alignment, count in counted.alignment.items() if alignment >= unit) / aligned
            yield _ALIGNED[unit].value(share, job)


def _bins(job: str | None, counted: DiskHistograms) -> pl.DataFrame:
    """A length that is known to a power of two fills a bin up to the next; one that is exact, a sector."""
    rows: list[tuple[str | None, str, float, float, int]] = []
    for length, count in counted.granularity.items():
        upper = length + FLOOR if counted.exact else 2 * length
        rows.append((job, _LENGTHS.name, float(length), float(upper), count))
    for alignment, count in counted.alignment.items():
        rows.append((job, _ALIGNMENTS.name, float(alignment), float(2 * alignment), count))
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")
