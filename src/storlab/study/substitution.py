"""Putting factors into a study: ``"{name}"`` anywhere in its strings.

``"{name.key}"`` is one key of a level that is a table. A string that is nothing but ``"{name}"`` becomes the level's value, whatever its type; in a list, a value that is
itself a list is spliced in. Inside a longer string the value is put in as text. ``{{`` stands for a brace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from storlab.study.positions import Path

_WORD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)\}")


@dataclass(frozen=True)
class Word:
    """A value that can be put in, and where in the study it stands."""

    value: Any
    origin: Path


@dataclass
class Substitution:
    """Replaces words throughout a tree and remembers where each part of the result came from.

    ``late`` names stay as they are: they are filled in when a trial runs. ``unknown`` collects (path, name) of
    words that are neither; ``used`` the names that were put in.
    """

    words: Mapping[str, Word]
    late: Collection[str] = ()
    unknown: list[tuple[Path, str]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    _active: list[str] = field(default_factory=list)
    origins: dict[Path, Path] = field(default_factory=dict)

    def apply(self, value: Any, path: Path, origin: Path | None = None) -> Any:
        """The tree with all words put in; ``path`` is where the result stands, ``origin`` where it came from."""
        origin = path if origin is None else origin
        if origin != path:
            self.origins[path] = origin
        match value:
            case dict():
                return {key: self.apply(child, (*path, key), (*origin, key)) for key, child in value.items()}
            case list():
                return self._list(value, path, origin)
            case str():
                return self._string(value, path, origin)
            case _:
                return value

    def _list(self, items: list[Any], path: Path, origin: Path) -> list[Any]:
        result: list[Any] = []
        for index, item in enumerate(items):
            at = (*path, len(result))
            word = self._whole(item)
            if word is not None and isinstance(word.value, list):
                self._active.append(_first(item))
                for offset, child in enumerate(word.value):
                    result.append(self.apply(child, (*path, len(result)), (*word.origin, offset)))
                self._active.pop()
            else:
                result.append(self.apply(item, at, (*origin, index)))
        return result

    def _whole(self, item: Any) -> Word | None:
        match = _WORD.fullmatch(item) if isinstance(item, str) else None
        return None if match is None or match[1] is None else self._find(match[1])

    def _find(self, name: str) -> Word | None:
        """The value of ``name`` or ``name.key``; ``None`` where there is none, or where it would contain itself."""
        first, *keys = name.split(".")
        if first not in self.words or first in self._active:
            return None
        word = self.words[first]
        for key in keys:
            if not isinstance(word.value, dict) or key not in word.value:
                return None
            word = Word(word.value[key], (*word.origin, key))
        self.used.add(first)
        return word

    def _string(self, text: str, path: Path, origin: Path) -> Any:
        word = self._whole(text)
        if word is not None:
            self._active.append(_first(text))
            value = self.apply(word.value, path, word.origin)
            self._active.pop()
            return value

        def put_in(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return match[0][0]
            word = self._find(name)
            if word is not None:
                return str(word.value)
            if name not in self.late:
                self.unknown.append((origin, name))
            return match[0]

        return _WORD.sub(put_in, text)

    def origin_of(self, path: Path) -> Path:
        """Where in the study file the part at ``path`` of the result stands."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return (*self.origins[path[:length]], *path[length:])
        return path


def _first(word: str) -> str:
    return word.strip("{}").partition(".")[0]
