"""fio's JSON document, found in and freed from what surrounds it, and read with its shape checked.

fio writes notes and errors to standard output before its document, sometimes after, and to standard
error. With ``--status-interval`` there are several documents, the last of them complete. fio prints
documents with their outer braces alone at the start of a line (``json.c``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from storlab.errors import ParseError

_START = re.compile(rb"^[ \t]*\{", re.MULTILINE)
# A float that isn't a number: fio prints it as C does, which no JSON reader takes.
_NOT_A_NUMBER = re.compile(rb"(:\s*|\[\s*|,\s*)-?(?:nan|inf)\b")


@dataclass(frozen=True)
class Node:
    """A value in the document with its path, so that a wrong one is named in the error."""

    value: object
    path: str
    source: str

    def fail(self, expected: str) -> ParseError:
        """The error for a value that isn't what it should be."""
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        return ParseError(f"{self.path or 'the document'} should be {expected}, not {shown}", self.source)

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> Node:
        """The member ``key``; ``ParseError`` where it is missing or this is no object."""
        members = self.members()
        path = f"{self.path}.{key}" if self.path else key
        if key not in members:
            raise ParseError(f"{path} is missing: truncated, or not from fio 3", self.source)
        return Node(members[key], path, self.source)

    def members(self) -> Mapping[str, object]:
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return self.value

    def items(self) -> Iterator[Node]:
        if not isinstance(self.value, list):
            raise self.fail("a list")
        for index, value in enumerate(self.value):
            yield Node(value, f"{self.path}[{index}]", self.source)

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail("text")
        return self.value

    def count(self) -> int:
        """A whole number from 0, within 64 bits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value < 1 << 63:
            raise self.fail("a whole number from 0")
        return self.value

    def number(self) -> float:
        """A number; what fio could not compute (``nan``) is 0, as where there was nothing to measure."""
        if self.value is None:
            return 0.0
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or abs(self.value) > 1e300:
            raise self.fail("a number")
        return float(self.value)


@dataclass(frozen=True)
class Document:
    """A document and the lines around it. ``dropped`` is the number of earlier documents."""

    root: Node
    messages: tuple[str, ...]
    dropped: int = 0


def read_document(output: bytes, source: str, messages: bytes = b"") -> Document | tuple[str, ...]:
    """The last JSON document of fio's standard output; where there is none at all, just the messages.

    ``messages`` is fio's standard error, if kept apart. Raises ``ParseError`` with source and line for a
    document that is truncated or damaged.
    """
    spans = list(_spans(output))
    if not spans:
        return _lines(messages, output)
    start, end = spans[-1]
    value = _load(output[start:end], source, output.count(b"\n", 0, start))
    around = [output[before:after] for before, after in _gaps(spans, len(output))]
    return Document(Node(value, "", source), _lines(messages, *around), len(spans) - 1)


def _spans(output: bytes) -> Iterator[tuple[int, int]]:
    """Where documents stand; the last may be truncated, or laid out otherwise than fio does."""
    end = 0
    while (begun := _START.search(output, end)) is not None:
        # bytes.find, not one expression for the whole: that takes ten times as long as parsing.
        closed = output.find(b"\n}", begun.start())
        end = closed + 2 if closed >= 0 else len(output)
        yield begun.start(), end


def _gaps(spans: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    before = 0
    for start, end in spans:
        yield before, start
        before = end
    yield before, size


def _lines(*parts: bytes) -> tuple[str, ...]:
    """The non-empty lines of all parts, each once (fio prints some messages twice), in order."""
    lines = (line.strip() for part in parts for line in part.decode(errors="replace").splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def _load(document: bytes, source: str, lines_before: int) -> object:
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError:
        # Paths may be in any encoding.
        text = document.decode(errors="replace").encode()
        text = _NOT_A_NUMBER.sub(rb"\1null", text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        reason = f"fio's JSON is damaged or truncated: {error.msg}"
        raise ParseError(reason, source, lines_before + error.lineno) from None
