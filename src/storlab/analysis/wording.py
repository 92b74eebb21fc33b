"""Numbers and lists as words, for the sentences that travel with a result."""

from __future__ import annotations

from collections.abc import Sequence


def times(ratio: float) -> str:
    """``1.42×``; three decimals near 1, where two would hide the difference."""
    if 0.95 < ratio < 1.05:
        return f"{ratio:.3f}×"
    if 0.1 <= ratio < 100:
        return f"{ratio:.2f}×"
    if 100 <= ratio < 1e6:
        return f"{ratio:.0f}×"
    return f"{ratio:.2g}×"


def percent(share: float) -> str:
    """``5 %``, ``99.5 %``: no more decimals than it needs, five at most."""
    return f"{round(share * 100, 5):.10g} %"


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
