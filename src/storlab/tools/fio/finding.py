"""Where fio's JSON documents stand in a text: with lines around them, indented, in an array (``jq -s``), under the keys
of other JSON, as a string in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

KEY = re.compile(rb'"fio version\\{0,15}"\s{0,9}:')
"""What a document has once, also where it is a string in another one."""
_START = re.compile(
    rb'^(?P<indent> {0,64}|\t{0,16})(?:fio: [^\n{]*(?=\{[ \t]*$)|[^\n{]*(?=\{\s*"fio version"))?'
    rb"(?P<sign>\{|\[(?=\s*\{))",
    re.MULTILINE,
)
"""fio 3.33 ends some messages without a newline."""
_FOLLOWS = re.compile(rb"(?P<indent>)[ \t,]*(?P<sign>\{|\[(?=\s*\{))")
"""The next document, where the end of the file before it was no end of a line."""
_NAME = b"fio version"
_DEPTH = 16
_MOST_DAMAGED = 1000
"""From then on, where one ends is told by its lines: to read as far as its fault may take long."""
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_TRAILING = re.compile(r".*trailing characters \(byte (\d+)\)")


@dataclass(frozen=True)
class Found:
    """A JSON value at ``start``, and its text. ``path``: the keys under which it stands in the value around it."""

    start: int
    text: bytes
    path: tuple[str, ...] = ()


def spans(output: bytes) -> Iterator[tuple[int, int]]:
    """Where documents stand. Any may be damaged, or truncated: by the end, or by the next, whose brace opens a line."""
    end = damaged = 0
    closing: dict[bytes, int] = {}
    while (begun := (end and _FOLLOWS.match(output, end)) or _START.search(output, end)) is not None:
        start = begun.start("sign")
        size = _size(memoryview(output)[start:]) if damaged < _MOST_DAMAGED else 0
        damaged += not size
        end = start + size if size else _damaged_end(output, begun, closing)
        yield start, end


def _size(text: memoryview) -> int:
    """Of the JSON value with which a text begins, in bytes; 0 where it is none."""
    try:
        _VALUE.decode(text)
    except (ValueError, RecursionError) as error:
        after = _TRAILING.fullmatch(str(error))
        return int(after[1]) - 1 if after else 0
    return len(text)


def _damaged_end(output: bytes, begun: re.Match[bytes], closing: dict[bytes, int]) -> int:
    """Where what was to be a value ends, by the lines. ``closing``: where the next such end is, or that none is."""
    opens = b"\n" + begun["indent"] + begun["sign"]
    closes = opens[:-1] + (b"}" if begun["sign"] == b"{" else b"]")
    closed = closing.get(closes, 0)
    if 0 <= closed <= begun.start():
        closing[closes] = closed = output.find(closes, begun.start())
    line = output.find(b"\n", begun.end())
    line = line if line >= 0 else len(output)
    if output[begun.end() : line].rstrip().endswith(closes[-1:]):
        return line
    until = closed if closed >= 0 else len(output)
    another = output.find(opens, begun.end(), until)
    return another + 1 if another >= 0 else closed + len(closes) if closed >= 0 else len(output)


def gaps(of: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """What is before each span, and after the last."""
    before = 0
    for start, end in of:
        yield before, start
        before = end
    yield before, size


def unwrapped(value: Found, depth: int = 0) -> Iterator[Found]:
    """The documents of fio in a JSON value that is none itself, in order. Raises ``msgspec.DecodeError``."""
    if depth > _DEPTH:
        raise msgspec.DecodeError(f"documents stand more than {_DEPTH} levels deep")
    if value.text.startswith(b'"'):
        text = msgspec.json.decode(value.text, type=str).encode()
        for start, end in spans(text):
            if _NAME in text[start:end]:
                yield from unwrapped(Found(value.start, text[start:end], value.path), depth + 1)
        return
    members: Sequence[tuple[str, msgspec.Raw]]
    if value.text.startswith(b"["):
        members = [("", each) for each in msgspec.json.decode(value.text, type=list[msgspec.Raw])]
    else:
        named = msgspec.json.decode(value.text, type=dict[str, msgspec.Raw])
        if named.keys() & {"jobs", "client_stats"} and "fio version" in named:
            yield value
            return
        members = list(named.items())
    at = 0
    for name, raw in members:
        text = bytes(raw)
        at = max(at, value.text.find(text, at))
        if _NAME in text and text[:1] in b'{["':
            inner = replace(value, start=value.start + at, text=text, path=(*value.path, name) if name else value.path)
            yield from unwrapped(inner, depth + 1)
        at += len(text)
