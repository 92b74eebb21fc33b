"""fio's JSON inside of something else: another program's JSON, a log that begins each line with its source, a line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

KEY = b"fio version"
_BEHIND = re.compile(rb'^([^\n{]{1,200})\{[ \t\r]*\n\1[ \t]*"fio version"', re.MULTILINE)  # the same before both lines
_ON_ITS_LINE = re.compile(rb'^[^\n{]+(?=\{\s*"fio version")', re.MULTILINE)


def taken_out(text: bytes) -> bytes:
    """Its documents without what stands before them, one after the other; empty where there are none such."""
    if KEY not in text:
        return b""
    sources = {match[1] for match in _BEHIND.finditer(text) if match[1].strip()}
    if sources:
        return re.sub(rb"^(?:" + b"|".join(map(re.escape, sources)) + rb")", b"", text, flags=re.MULTILINE)
    try:
        return b"\n".join(_documents(msgspec.json.decode(text)))
    except (ValueError, RecursionError):
        return _ON_ITS_LINE.sub(b"", text) if _ON_ITS_LINE.search(text) else b""


def _documents(value: object) -> Iterator[bytes]:
    if isinstance(value, str) and KEY.decode() in value:
        yield value.encode(errors="replace")
    elif isinstance(value, dict) and KEY.decode() in value:
        yield msgspec.json.encode(value)
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _documents(each)
