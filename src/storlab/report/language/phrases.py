"""Phrases that sentences share: times, counts, lists, and what the words of a finding may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from storlab.findings import Finding

Say = Callable[[Finding], str]


class Nested(NamedTuple):
    """The words of a finding that holds others: ``words`` gets what says these, too."""

    words: Callable[[Any, Say], str]


Words = str | Callable[[Any], str] | Nested

FEW = 4  # names of a sentence; of more, the first are named


def lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def first_of(names: Sequence[str]) -> str:
    """ "a, b and c"; of more than four the first three, and how many more."""
    if len(names) > FEW:
        return f"{', '.join(names[: FEW - 1])} and {len(names) - FEW + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def stop(text: str) -> str:
    """``text`` with a full stop. The first letter stays: it may be the name of a level."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


_ENDLESS = 1e300  # with its inverse: beyond any ratio of measurements, and not beyond what stands for one with 0


def times(low: float | None, ratio: float, high: float | None) -> str:
    """``1.42× (1.31× to 1.54×)``; more decimals near 1, where two would hide a difference.

    An end of the interval reads as 1 only where it is nothing else in six decimals.
    """
    if low is None or high is None:
        return times_alone(ratio)
    nearest = min(abs(number - 1) for number in (low, ratio, high))
    widest = max(abs(number - 1) for number in (low, ratio, high))
    decimals = 3 if widest < 0.1 or nearest < 0.005 else 2
    while decimals < 6 and any(abs(end - 1) > 1e-8 and round(end, decimals) == 1 for end in (low, high)):
        decimals += 1
    return f"{_times(ratio, decimals)} ({_times(low, decimals)} to {_times(high, decimals)})"


def times_alone(ratio: float) -> str:
    """``1.42×``, or ``1.013×`` near 1."""
    return _times(ratio, 3 if abs(ratio - 1) < 0.1 else 2)


def endless(ratio: float) -> str:
    """``∞×`` or ``0×`` for what only a ratio with 0 is; empty for any other."""
    return "∞×" if ratio > _ENDLESS else "0×" if ratio < 1 / _ENDLESS else ""


def _times(number: float, decimals: int) -> str:
    if shown := endless(number):
        return shown
    if 0.1 <= number < 100:
        return f"{number:.{decimals}f}×"
    return f"{number:.0f}×" if 100 <= number < 1e6 else f"{number:.2g}×"


def time_words(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``7 min 40 s``, ``8 h 33 min``."""
    if seconds < 9.95:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
