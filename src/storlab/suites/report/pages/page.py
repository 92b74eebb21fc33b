"""A page of an answer and tables, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """``numbers``: columns that are aligned to the right. ``tones``: of each row, how it is coloured; may be empty."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    intro: str = ""
    numbers: frozenset[int] = frozenset()
    tone: str = ""


@dataclass(frozen=True)
class Page:
    """``document``: the same for programs."""

    title: str
    answer: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    counts: Sequence[tuple[str, int]] = ()
    document: Mapping[str, object] = field(default_factory=dict)
