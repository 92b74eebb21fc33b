"""Text that a tool printed and others passed on: quoted in mail, indented in a page, with time stamps and colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from storlab.errors import ParseError
from storlab.formats.prefixes import as_shown, peeled
from storlab.importing.importer import HEADING, Part
from storlab.text import printable

Found = TypeVar("Found")
_HEADING = re.compile(rb"\n#{1,6} {1,8}([^\s#][^\n]{0,60})")
_MOST = 1000  # headings of a file


def read_passed_on(text: bytes, read: Callable[[bytes], Sequence[Found]], begin: bytes = b"") -> Sequence[Found]:
    """What ``read`` finds in ``text``, or in what is left of it without what stands before its lines.

    ``begin``: a pattern of what lines begin with that the tool doesn't indent, where its reader needs that. The
    most that is found counts, as in mail some lines are quoted and others are not. Raises the ``ParseError`` that says
    most.
    """
    found: Sequence[Found] = ()
    refused: ParseError | None = None
    for shown in peeled(as_shown(text)):
        try:
            parts = read(_at_margin(shown, begin) if begin else shown)
        except ParseError as error:
            refused = error if refused is None or (refused.line is None and error.line is not None) else refused
        else:
            found = parts if len(parts) >= len(found) else found
        if found and begin and not (b">" in shown and b"\n>" in shown):  # one sign is looked for much faster
            break  # where lines must begin so, nothing else stands before any
    if not found and refused is not None:
        raise refused
    return found


def under_headings(text: bytes, parts: Sequence[tuple[int, Part]]) -> list[Part]:
    """Parts, each with the line on which it begins; where they stand under several headings, with their own as a fact.

    What a heading means nobody knows but its writer, so it tells no cells apart.
    """
    found: list[tuple[int, bytes]] = []
    if len(parts) < 2:
        return [part for _, part in parts]
    line = counted = 0
    for match in islice(_HEADING.finditer(b"\n" + text), _MOST):
        line, counted = line + text.count(b"\n", counted, match.start()), match.start()
        found.append((line + 1, match[1]))
    said = [next((heading for at, heading in reversed(found) if at <= line), b"") for line, _ in parts]
    if len(set(said)) < 2:
        return [part for _, part in parts]
    return [
        _with_fact(part, printable(heading.decode(errors="replace")))
        for (_, part), heading in zip(parts, said, strict=True)
    ]


def _with_fact(part: Part, heading: str) -> Part:
    return replace(part, found=replace(part.measured, facts={**part.measured.facts, HEADING: heading.strip("# ")}))


def _at_margin(text: bytes, begin: bytes) -> bytes:
    """``text`` without the blanks that stand before a line which begins so, there and below it."""
    indented = rb"[ \t]+(?:" + begin + rb")"
    if re.match(indented, text) is None and re.search(rb"\n" + indented, text) is None:
        return text
    known = re.compile(rb"([ \t]*+)(?:" + begin + rb")")
    margin = b""
    lines = text.split(b"\n")
    for at, line in enumerate(lines):
        if (found := known.match(line)) is not None:
            margin = found[1]
        lines[at] = line.removeprefix(margin)
    return b"\n".join(lines)
