"""Putting factors into a study: ``"{name}"`` anywhere in its strings.

``"{name.key}"`` is one key of a level that is a table. A string that is nothing but ``"{name}"`` becomes the level's
value, whatever its type; in a list, a value that is itself a list is spliced in. Inside a longer string the value is
put in as text. ``{{`` and ``}}`` stand for braces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from storlab.base.limits import CELL_PARTS
from storlab.base.units import shown
from storlab.study.messages import WrongKey, nearest
from storlab.study.toml_text import Path

_NAME = r"[A-Za-z_][\w-]*(?:\.[\w-]+)*"
_WORD = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{\{{|\}}\}}|\{{({_NAME})\}}", re.ASCII)

_PIECE = 256  # characters


@dataclass(frozen=True)
class Word:
    """A value that can be put in, and where in the study it stands."""

    value: Any
    origin: Path


class Outgrown(Exception):
    """Words within words make a cell larger than any study can mean; ``path`` is where they are put in."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


@dataclass
class Substitution:
    """Replaces words throughout a tree and remembers where each part of the result came from.

    ``problems`` collects (origin, message) of words that can't be put in; ``used`` the names that were.
    """

    words: Mapping[str, Word]
    late: Collection[str] = ()
    problems: list[tuple[Path, str]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    origins: dict[Path, Path] = field(default_factory=dict)
    _active: list[str] = field(default_factory=list)
    _late_here: bool = False
    _at: Path = ()
    _parts: int = 0

    def apply(self, value: Any, path: Path, late: bool = False) -> Any:
        """The tree with all words put in; ``path`` is where it stands.

        With ``late``, the words that are filled in when a trial runs stay as they are.
        """
        self._late_here, self._at = late, path
        return self._apply(value, path, path)

    def origin_of(self, path: Path) -> Path:
        """Where in the study file the part at ``path`` of the result stands."""
        if path and isinstance(path[-1], WrongKey):
            return (*self.origin_of(path[:-1]), path[-1])
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return (*self.origins[path[:length]], *path[length:])
        return path

    def _apply(self, value: Any, path: Path, origin: Path) -> Any:
        self._grow(1)
        if origin != path:
            self.origins[path] = origin
        match value:
            case dict():
                return {key: self._apply(child, (*path, key), (*origin, key)) for key, child in value.items()}
            case list():
                return self._list(value, path, origin)
            case str():
                return self._string(value, path, origin)
            case _:
                return value

    def _list(self, items: list[Any], path: Path, origin: Path) -> list[Any]:
        result: list[Any] = []
        for index, item in enumerate(items):
            at, here = (*path, len(result)), (*origin, index)
            name = _whole(item)
            word = self._find(name, None) if name is not None else None
            if name is None or word is None or not isinstance(word.value, list):
                result.append(self._apply(item, at, here))
                continue
            with self._inside(name):
                for offset, child in enumerate(word.value):
                    result.append(self._apply(child, (*path, len(result)), (*word.origin, offset)))
        return result

    def _string(self, text: str, path: Path, origin: Path) -> Any:
        name = _whole(text)
        word = self._find(name, origin) if name is not None else None
        if name is not None and word is not None:
            with self._inside(name):
                return self._apply(word.value, path, word.origin)
        return text if name is not None else self._fill(text, origin)

    def _fill(self, text: str, origin: Path) -> str:
        def put_in(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            if escaped is not None:
                stays = self._late_here and escaped in self.late  # it would look like one of those words later
                return match[0] if stays else match[0][1:-1]
            if name is None:
                return match[0][0]
            word = self._find(name, origin)
            if word is None:
                return match[0]
            with self._inside(name):
                return self._text(name, word, origin)

        filled = _WORD.sub(put_in, text)
        self._grow(1 + len(filled) // _PIECE)
        return filled

    def _text(self, name: str, word: Word, origin: Path) -> str:
        match word.value:
            case str():
                return self._fill(word.value, word.origin)
            case bool():
                return str(word.value).lower()
            case dict() | list():
                kind = "table" if isinstance(word.value, dict) else "list"
                self.problems.append(
                    (origin, f"{{{name}}} is a {kind} here: it can't be put into a longer text, only stand alone")
                )
                return ""
            case _:
                return str(word.value)

    def _find(self, name: str, origin: Path | None) -> Word | None:
        """The value of ``name`` or ``name.key``. Where there is none, that is a problem at ``origin``, if given."""
        first, *keys = name.split(".")
        if first in self._active:
            circle = " → ".join([*self._active[self._active.index(first) :], first])
            self._problem(origin, f"{{{first}}} contains itself: {circle}")
            return None
        if first not in self.words:
            if name in self.late and self._late_here:
                return None
            self._problem(origin, self._unknown(name))
            return None
        word = self.words[first]
        for key in keys:
            if not isinstance(word.value, dict) or key not in word.value:
                keys_there = list(word.value) if isinstance(word.value, dict) else []
                has = f"which has no key {key!r}{nearest(key, keys_there)}" if keys_there else "which is not a table"
                self._problem(origin, f"{{{name}}}: {first} is {shown(word.value)} here, {has}")
                return None
            word = Word(word.value[key], (*word.origin, key))
        self.used.add(first)
        return word

    def _problem(self, origin: Path | None, message: str) -> None:
        if origin is not None:
            self.problems.append((origin, message))

    def _unknown(self, name: str) -> str:
        if name in self.late:
            return f"{{{name}}} is known only while a trial runs: in workloads, prepare, precondition and verify"
        known = [*self.words, *(self.late if self._late_here else ())]
        text = f"; for the text itself, write {{{{{name}}}}}" if self._late_here else ""
        hint = (nearest(name.partition(".")[0], known) + text) or f"; for the text itself, write {{{{{name}}}}}"
        return f"unknown factor or parameter {{{name}}}{hint}"

    def _grow(self, parts: int) -> None:
        self._parts += parts
        if self._parts > CELL_PARTS:  # a parameter that multiplies itself, not a study
            raise Outgrown("the words in braces make this too large: does one contain others many times?", self._at)

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._active.append(name.partition(".")[0])
        try:
            yield
        finally:
            self._active.pop()


def _whole(item: object) -> str | None:
    """The name, where a string is nothing but one word."""
    match = _WORD.fullmatch(item) if isinstance(item, str) else None
    return None if match is None else match[2]
