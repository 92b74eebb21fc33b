"""Studies with one mistake each, by hand, and what is to be said about it.

``#! words`` at the end of a line: the message names this line and contains these words. A text that lacks a title,
a stack or a workload gets a sound one, so that its one mistake stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MARK = re.compile(r"\s*#! (.*)$", re.MULTILINE)
_PARTS = {
    "title": 'title = "A sound study but for one thing"\n',
    "stack": 'stack = [{ layer = "directory" }]\n',
}
_WORKLOAD = '\n[workload.load]\nfio = { rw = "write", size = "1M" }\n'


@dataclass(frozen=True)
class Mistake:
    """``line`` is from 1; ``None`` where the mistake stands on no line."""

    name: str
    text: str
    line: int | None
    says: str


def read(texts: Mapping[str, str]) -> list[Mistake]:
    return [_read(name, text) for name, text in texts.items()]


def completed(text: str) -> str:
    """With a title, a stack and a workload, where it has none."""
    whole = text
    top = re.split(r"^\[", text, maxsplit=1, flags=re.MULTILINE)[0]
    for part, sound in _PARTS.items():
        if not (re.search(rf"^\s*{part}\b", top, re.MULTILINE) or re.search(rf"^\[+{part}\b", text, re.MULTILINE)):
            whole = sound + whole
    return whole if re.search(r"^\[*workload\b", text, re.MULTILINE) else whole + _WORKLOAD


def _read(name: str, text: str) -> Mistake:
    whole = completed(text)
    marks = list(_MARK.finditer(whole))
    assert len(marks) == 1, f"{name}: {len(marks)} marks"
    line = whole[: marks[0].start(1)].count("\n") + 1
    return Mistake(name, _MARK.sub("", whole), line, marks[0][1])
