"""What ``zpool iostat -pv`` prints of one pool, with ``-l`` or without, once or at an interval: zpool-iostat(8).

Two lines of headings: what several columns are about, and the columns. Versions that know more waits have further
columns, so columns are identified by their headings, which ``-v`` prints for each interval. See
``print_iostat_header_impl`` in cmd/zpool/zpool_main.c of OpenZFS 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from storlab.errors import ParseError
from storlab.text import is_whole

_PAIRS = ("capacity", "operations", "bandwidth")
_WAIT = "_wait"
_NONE = "-"
_DIGITS = 20


@dataclass(frozen=True)
class PoolInterval:
    """What a pool did in one interval: column → number, as ``read operations`` or ``total_wait write``.

    Operations and bytes a second; waits in ns. A number that it does not say is not there.
    """

    pool: str
    numbers: Mapping[str, int]


def parse_zpool_iostat(text: str, source: str) -> list[PoolInterval]:
    """An interval for each line of a pool; those of its vdevs are passed over.

    Raises ``ParseError`` with the line of what is no output of ``zpool iostat -p``; a last line that is cut off is left
    out.
    """
    lines = [line.split() for line in text.split("\n")]
    found: list[PoolInterval] = []
    columns: Sequence[str] = ()
    first = False  # whether the next line is that of a pool
    for at, (words, following) in enumerate(zip(lines, [*lines[1:], []], strict=True), start=1):
        if _is_heading(words):
            columns = _columns(lines[at - 2] if at > 1 else [], words[1:], source, at)
        elif not words or _is_heading(following):
            continue  # what the columns are about
        elif set("".join(words)) == {"-"}:
            first = True
        elif columns and first and at < len(lines):  # the last line was ended within, else it would be empty
            found.append(PoolInterval(words[0], dict(_numbers(columns, words[1:], source, at))))
            first = False
    if not columns:
        raise ParseError("is no output of `zpool iostat`: its headings are missing", source, 1)
    return found


def _is_heading(words: Sequence[str]) -> bool:
    return words[:2] in (["pool", "alloc"], ["vdev", "alloc"])


def _columns(about: Sequence[str], names: Sequence[str], source: str, at: int) -> list[str]:
    """``operations read`` and so on: what is above two columns, or above one."""
    found: list[str] = []
    for word in about:
        width = 2 if word in _PAIRS or word.endswith(_WAIT) else 1
        found += [f"{word} {name}" for name in names[len(found) : len(found) + width]]
    if len(found) != len(names):
        raise ParseError("has headings of `zpool iostat` that do not match each other", source, at)
    return found


def _numbers(columns: Sequence[str], words: Sequence[str], source: str, at: int) -> Iterator[tuple[str, int]]:
    if len(words) != len(columns):
        raise ParseError(f"has {len(words)} numbers under {len(columns)} headings", source, at)
    for column, word in zip(columns, words, strict=True):
        if word == _NONE:
            continue
        if not is_whole(word) or len(word) > _DIGITS:
            raise ParseError(f"{word[:50]!r} is not a number as `zpool iostat -p` prints it", source, at)
        yield column, int(word)


def mean_of(intervals: Iterable[PoolInterval], column: str, weight: str = "") -> float | None:
    """A column's mean over the intervals that have it, each weighted by what another column says."""
    pairs = [
        (each.numbers[column], each.numbers.get(weight, 0) if weight else 1)
        for each in intervals
        if column in each.numbers
    ]
    total = sum(weight for _, weight in pairs)
    return sum(number * weight for number, weight in pairs) / total if total else None
