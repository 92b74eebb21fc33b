"""Foreign text made harmless: names, reasons, output and files come from studies, users, tools, guests and kernels.

``plain`` is the one that all text passes on its way to a terminal, a log or a page; where a sign was is still seen.
``printable`` says which sign it was, for names that must stay apart; ``spelled`` does so within JSON. Of many things
that belong together, a sentence names a few: ``grouped``, ``few``, ``ranges``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

REPLACEMENT = "\ufffd"

# Control characters (a terminal obeys them, those from U+0080 to U+009F as well), bidirectional overrides (they make
# text read as something else), line separators, lone surrogates (they can't be encoded) and what is no character.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
# What a spreadsheet computes where a cell begins with it, and numbers, which it may.
_NAMED = 5  # of many
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def plain(text: str) -> str:
    """``text`` without characters that a terminal or a page would act on; new lines and tabs stay."""
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """``text`` as one line with single spaces."""
    return " ".join(plain(text).split())


def cell(text: str) -> str:
    """``text`` for a cell of a CSV table: an apostrophe is before what a spreadsheet would compute, but not numbers."""
    clean = plain(text)
    return f"'{clean}" if _FORMULA.match(clean) and not _NUMBER.fullmatch(clean) else clean


def spelled(json: str) -> str:
    """JSON that means the same and holds no character that a terminal would act on: they are escaped in its strings."""
    return _UNSAFE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json)


def printable(text: str) -> str:
    """The text with a code in place of every sign that a terminal would act upon instead of showing it."""
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04X}" for sign in text)


def first(names: Sequence[str], between: str = ", ") -> str:
    return between.join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


def is_whole(text: str, digits: int = 18) -> bool:
    """Whether it is a whole number in digits from 0 to 9, and no more of them than fit into 63 bits.

    ``str.isdigit`` also takes ``²``, which ``int`` does not, nor more than 4300 of any.
    """
    return text.isascii() and text.isdigit() and len(text) <= digits


def number_or_text(text: str) -> int | str:
    """A value as programs and kernels print it. What has more digits than 63 bits have is not a number to anybody."""
    return int(text) if is_whole(text) else text


def storable(text: str) -> str:
    """A file's name, or a word of the command line, as UTF-8 can hold it: bytes that are none as ``\\xff``."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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
_GROUPING_NUMBER = re.compile(r"[0-9][0-9.,]*")


def alike(sentences: Iterable[str]) -> list[str]:
    """Each once; of those that differ in numbers alone, as of a thousand cells, the first ones and how many more."""
    kinds = grouped((_GROUPING_NUMBER.sub("0", sentence), sentence) for sentence in dict.fromkeys(sentences))
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
