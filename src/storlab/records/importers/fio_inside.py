"""fio's JSON inside of something else: of another program's JSON, or of a log that begins each line with its source."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

KEY = b"fio version"
_BEHIND = re.compile(rb'^([^\n{]{1,200})\{[ \t\r]*\n\1[ \t]*"fio version"', re.MULTILINE)  # the same before both lines


def taken_out(text: bytes) -> bytes:
    """Its documents alone, one after the other; empty where there are none."""
    if KEY not in text:
        return b""
    sources = {match[1] for match in _BEHIND.finditer(text) if match[1].strip()}
    if sources:
        return re.sub(rb"^(?:" + b"|".join(map(re.escape, sources)) + rb")", b"", text, flags=re.MULTILINE)
    try:
        return b"\n".join(_documents(msgspec.json.decode(text)))
    except (ValueError, RecursionError):
        return b""


def _documents(value: object) -> Iterator[bytes]:
    if isinstance(value, str) and KEY.decode() in value:
        yield value.encode(errors="replace")
    elif isinstance(value, dict) and KEY.decode() in value:
        yield msgspec.json.encode(value)
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _documents(each)
