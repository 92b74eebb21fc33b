"""Means as some published tables have them: of whole numbers, cut to a whole number. For nothing but such tables."""

from __future__ import annotations

from collections.abc import Sequence


def whole_mean(values: Sequence[float]) -> int:
    """Each of ``values`` (at least one, none negative) rounded, half up; their mean without its fraction."""
    return sum(int(value + 0.5) for value in values) // len(values)
