"""Numbers and lists as words, for the sentences that travel with a result."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ENDLESS = 1e300  # with its inverse: beyond any ratio of measurements, and not beyond what stands for one with 0


def times(low: float, ratio: float, high: float) -> str:
    """``1.42× (1.31× to 1.54×)``; more decimals near 1, where two would hide a difference.

    An end of the interval reads as 1 only where it is nothing else in six decimals.
    """
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


def percent(share: float) -> str:
    """``5 %``, ``99.5 %``, ``99.983 %``: two digits of what is missing to 100 %, or of the share itself."""
    small = 100 * min(share, 1 - share) if 0 < share < 1 else 1.0
    decimals = max(0, 1 - math.floor(math.log10(small)))
    return f"{round(share * 100, decimals):.12g} %"


def plural(count: int, noun: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(rounds: Sequence[int], most: int = 8) -> str:
    """``round 3``, ``rounds 1, 2 and 7``; a long list ends in how many more there are."""
    head = [str(number) for number in rounds[:most]]
    noun = "round" if len(rounds) == 1 else "rounds"
    if len(rounds) > most:
        return f"{noun} {', '.join(head)} and {len(rounds) - most} more"
    return f"{noun} {' and '.join(filter(None, [', '.join(head[:-1]), head[-1]]))}"


def level_names(levels: dict[str, str]) -> str:
    """``bs=4k, media=ssd``."""
    return ", ".join(f"{factor}={level}" for factor, level in levels.items())
