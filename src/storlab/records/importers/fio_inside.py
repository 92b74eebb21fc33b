"""fio's JSON inside of something else: another program's JSON, a log that begins each line with its source, a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

KEY = b"fio version"
_BEHIND = re.compile(rb'^([^\n{]{1,200})\{[ \t\r]*\n\1[ \t]*"fio version"', re.MULTILINE)  # the same before both lines
_WORDS = r"^[^\s{][^\n{]*(?=\{)"
_BEHIND_WORDS = re.compile(_WORDS, re.MULTILINE)
_ON_ITS_LINE = re.compile(_WORDS.encode() + rb'(?=\{\s*"fio version")', re.MULTILINE)


def taken_out(text: bytes) -> bytes:
    """Its documents without what stands before them, one after the other; empty where there are none such."""
    if KEY not in text:
        return b""
    sources = {match[1] for match in _BEHIND.finditer(text) if match[1].strip()}
    if sources:
        return re.sub(rb"^(?:" + b"|".join(map(re.escape, sources)) + rb")", b"", text, flags=re.MULTILINE)
    try:
        values = [msgspec.json.decode(text)]
    except (ValueError, RecursionError):
        if _ON_ITS_LINE.search(text):
            return _ON_ITS_LINE.sub(b"", text)
        values = list(_values(text.decode(errors="replace")))
    return b"\n".join(document for value in values for document in _documents(value))


def _values(text: str) -> Iterator[object]:
    """All JSON that stands behind something else on the line on which it begins: ``ok: [host] => {``."""
    decoder, end = json.JSONDecoder(), 0
    while begun := _BEHIND_WORDS.search(text, end):
        end = begun.end()
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(text, end)
            yield value


def _documents(value: object) -> Iterator[bytes]:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = "\n".join(value)  # lines, as in Ansible's stdout_lines
    if isinstance(value, str) and KEY.decode() in value:
        yield value.encode(errors="replace")
    elif isinstance(value, dict) and KEY.decode() in value:
        yield msgspec.json.encode(value)
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _documents(each)
