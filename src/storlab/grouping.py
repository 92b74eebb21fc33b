"""Things together that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Each key once, in the order of their first mention, with all its values in theirs."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def connected(things: Iterable[K], pairs: Iterable[tuple[K, K]]) -> dict[K, K]:
    """Each of ``things`` with the first one that it hangs together with, directly or through others, by ``pairs``."""
    first = {thing: thing for thing in things}

    def root(thing: K) -> K:
        while first[thing] != thing:
            first[thing] = first[first[thing]]
            thing = first[thing]
        return thing

    place = {thing: at for at, thing in enumerate(first)}
    for a, b in pairs:
        low, high = sorted((root(a), root(b)), key=place.__getitem__)
        first[high] = low
    return {thing: root(thing) for thing in first}


_MOST_RANGES = 10
_MOST_ALIKE = 3
_NUMBER = re.compile(r"[0-9][0-9.,]*")


def alike(sentences: Iterable[str]) -> list[str]:
    """Each once; of those that differ in numbers alone, as of a thousand cells, the first ones and how many more."""
    kinds = grouped((_NUMBER.sub("0", sentence), sentence) for sentence in dict.fromkeys(sentences))
    return [
        said
        for each in kinds.values()
        for said in (each if len(each) <= _MOST_ALIKE else [*each[:_MOST_ALIKE], _more(len(each) - _MOST_ALIKE)])
    ]


def _more(count: int) -> str:
    return f"and {count:,} more that differ from the last in numbers alone"


def few(names: Sequence[str], most: int) -> str:
    """Names in a row; of more than ``most`` the first ones and the last, and how many these are: ``a, b, … z (26)``."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, … {names[-1]} ({len(names):,})"


def ranges(numbers: Iterable[int]) -> str:
    """Of numbers in ascending order, ``1–3, 7``; of very many ranges, the first ones and the last."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    told = [f"{first}" if first == last else f"{first}–{last}" for first, last in found]
    if len(told) <= _MOST_RANGES:
        return ", ".join(told)
    count = sum(last - first + 1 for first, last in found)
    return f"{', '.join(told[: _MOST_RANGES - 1])}, … {told[-1]} ({count:,} in all)"
