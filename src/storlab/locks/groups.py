"""Groups of functions that wait for locks, by patterns of their names: which group a function belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from storlab.patterns import Pattern, PatternError, pattern
from storlab.units import shown

Groups = Mapping[str, Sequence[str]]
"""Name → patterns, in the order in which they are tried."""

MOST_GROUPS = 16
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_PATTERN = re.compile(r"[A-Za-z0-9_$*]{1,128}")


def check_groups(groups: Groups) -> None:
    """Raise ``ValueError`` for a name that is no word of a metric's name, and for what can't match a function."""
    for name, patterns in groups.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not a valid name of a group: write lowercase letters, digits, hyphens")
        if not patterns:
            raise ValueError(f'the group {name} has no functions: write patterns, such as ["{name}_*"]')
        for each in patterns:
            if not _PATTERN.fullmatch(each):
                raise ValueError(
                    f"{shown(each)} matches no function of the kernel: write a name, with * for any characters"
                )
        try:
            _compiled(patterns)
        except PatternError as error:
            raise ValueError(f"the patterns of {name} can't be matched: {error}") from None


def group_of(function: str, groups: Groups) -> str | None:
    """The first group that has the function, if any does."""
    for name, patterns in groups.items():
        if next(_compiled(patterns).first_groups(function), None) is not None:
            return name
    return None


def _compiled(patterns: Sequence[str]) -> Pattern:
    """All patterns of a group as one, which is compiled once."""
    written = (".*".join(re.escape(part) for part in each.split("*")) for each in patterns)
    return pattern(f"^({'|'.join(written)})$")
