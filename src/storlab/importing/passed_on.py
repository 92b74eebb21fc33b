"""Text that a tool printed and others passed on: quoted in mail, indented in a page, with time stamps and colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from storlab.errors import ParseError
from storlab.formats.prefixes import as_shown, peeled

Found = TypeVar("Found")


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
    if not found and refused is not None:
        raise refused
    return found


def _at_margin(text: bytes, begin: bytes) -> bytes:
    """``text`` without the blanks that stand before a line which begins so, there and below it."""
    if re.search(rb"\n[ \t]+(?:" + begin + rb")", b"\n" + text) is None:
        return text
    known = re.compile(rb"([ \t]*+)(?:" + begin + rb")")
    margin = b""
    lines = text.split(b"\n")
    for at, line in enumerate(lines):
        if (found := known.match(line)) is not None:
            margin = found[1]
        lines[at] = line.removeprefix(margin)
    return b"\n".join(lines)
