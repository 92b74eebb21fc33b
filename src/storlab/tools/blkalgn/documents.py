"""blkalgn's JSON as it is written: a count for each key, whatever the key means.

A file holds one document, or several, as ``storlab trace --json --interval`` prints them: each counts all since the
start, so the last one is all that there is to know. One that does not go on from the one before is of another trace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from storlab.errors import ParseError
from storlab.units import shown

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
    """The last whole one. Raises ``refusal`` where there are not several."""
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
    return Counted({UNKNOWN_DISK: _raw_python(document)} if python else _raw_disks(document["disks"]), python)


def _raw_python(document: Mapping[str, Any]) -> Raw:
    names = ("Block size", "Algn size")
    return {kind: _counts(document.get(name, {}), name) for kind, name in zip(_KINDS, names, strict=True)}


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
