"""Names of levels that are too long for a chart: what they share is left out, for the rest tells them apart."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from rich.cells import cell_len, chop_cells

LIMIT = 18  # letters: 132 px
_WORDS = re.compile(r"[^-_./ :,=]*[-_./ :,=]*")
_LETTER = 0.61  # of its height: how wide a letter is in a font that is wider than the theme's, as a reader's may be
_SIZE, _ROW = 12, 17  # px, of a legend's letters and rows
_SYMBOL = 34  # px, with the room around it
_BESIDE = 48  # px, beside a legend, which begins where the axis does


def shortened(names: Sequence[str], limit: int = LIMIT) -> dict[str, str]:
    """Name → what stands for it, of those longer than ``limit``. No two are the same, nor like a name that is not long.
    Letters count by their width: Chinese ones twice.

    Words that all long names begin or end with go first, then the middle of a name; where that makes two the same, the
    names stay as they are.
    """
    long = [name for name in dict.fromkeys(names) if cell_len(name) > limit]
    found = {name: _cut(part, limit) for name, part in zip(long, _without_common(long, limit), strict=True)}
    taken = [*found.values(), *(name for name in set(names) if name not in found)]
    return found if len(set(taken)) == len(taken) else {}


def title_of(factor: str) -> str | None:
    """What stands beside the levels of ``factor``, as short as they are; nothing where there is no factor."""
    return shortened([factor]).get(factor, factor) or None


def _without_common(names: Sequence[str], limit: int) -> list[str]:
    """Without the first and the last words that all share, as far as is needed: the words next to what differs stay."""
    parts = [[word for word in _WORDS.findall(name) if word] for name in names]
    if len(names) < 2:
        return list(names)
    spare = min(map(len, parts)) - 1
    first = min(spare, _shared(parts))
    last = min(spare - first, _shared([part[::-1] for part in parts]))
    begin = next(n for n in range(first + 1) if n == first or _longest(parts, n, 0) <= limit)
    end = next(n for n in range(last + 1) if n == last or _longest(parts, begin, n) <= limit)
    return [_between(part, begin, end) for part in parts]


def _shared(parts: Sequence[Sequence[str]]) -> int:
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*parts, strict=False)))


def _longest(parts: Sequence[Sequence[str]], begin: int, end: int) -> int:
    return max(cell_len(_between(part, begin, end)) for part in parts)


def _between(words: Sequence[str], begin: int, end: int) -> str:
    return "…" * bool(begin) + "".join(words[begin : len(words) - end]) + "…" * bool(end)


def _cut(name: str, limit: int) -> str:
    if cell_len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{chop_cells(name, limit - 1 - tail)[0]}…{chop_cells(name[::-1], tail)[0][::-1]}"


def width_of(text: str, size: float) -> float:
    """The px that ``text`` takes at most in letters that are ``size`` px high, whatever font a reader has."""
    return cell_len(text) * _LETTER * size


def with_short_names(spec: dict[str, Any]) -> dict[str, Any]:
    """A Vega-Lite specification in which levels are named so that they fit, wherever they are named."""
    short = shortened([name for names in _lists(spec, ("domain", "sort", "values")) for name in names])
    renamed: dict[str, Any] = _mapped(spec, lambda text: short.get(text, text)) if short else spec
    return renamed


def legend_of(spec: dict[str, Any], width: float) -> tuple[dict[str, int], int]:
    """How many columns a legend has within ``width`` px, and the px between them, so that no label meets the next; and
    the px that its rows take below the first.
    """
    longest = max((width_of(name, _SIZE) for names in _lists(spec, ("domain",)) for name in names), default=0.0)
    title = max((width_of(each, _SIZE) for each in _legend_titles(spec)), default=0.0)
    columns = max(1, int((width - _BESIDE - title) // (_SYMBOL + longest)))
    shown = max((len(names) for names in _lists(spec, ("values",))), default=1)
    further = math.ceil(shown / columns) - 1
    return {"columns": columns, "columnPadding": 10 + round(0.15 * longest)}, further * _ROW


def _legend_titles(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        title = (part.get("legend") or {}).get("title")
        if isinstance(title, str):
            yield title
        for key, value in part.items():
            if key not in ("datasets", "data"):
                yield from _legend_titles(value)
    elif isinstance(part, list):
        for value in part:
            yield from _legend_titles(value)


def _lists(part: Any, keys: Sequence[str]) -> Iterator[list[str]]:
    """The lists of names that the scales and axes of a specification have; data has none.

    Not of an axis that has a way of its own to make its labels fit.
    """
    if isinstance(part, dict):
        if "labelExpr" in (part.get("axis") or {}):
            return
        for key, value in part.items():
            if key in keys and isinstance(value, list) and all(isinstance(name, str) for name in value):
                yield value
            elif key not in ("datasets", "data"):
                yield from _lists(value, keys)
    elif isinstance(part, list):
        for value in part:
            yield from _lists(value, keys)


def _mapped(part: Any, change: Callable[[str], str]) -> Any:
    if isinstance(part, str):
        return change(part)
    if isinstance(part, dict):
        return {key: _mapped(value, change) for key, value in part.items()}
    return [_mapped(value, change) for value in part] if isinstance(part, list) else part
