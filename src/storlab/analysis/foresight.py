"""In how many rounds a study can decide, before anything has run: at the earliest, and in a typical noise.

The earliest follows from what evidence a verdict needs (``judging``), and from what a round adds to it at most
(``signed_rank``). How many rounds a difference takes is a forecast (``forecast``); no verdict depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storlab.analysis.judging import family_of, needed_by
from storlab.analysis.noise_floor import rounds_to_see
from storlab.analysis.questions import Planned
from storlab.analysis.stats.signed_rank import fewest_rounds

ASSUMED = 0.10
"""Standard deviation of a log ratio where nothing is known: of trials of some seconds on a machine that is not idle."""

USUAL = 0.10
"""A difference that is always forecast, whatever the margins of the study are."""


_COUNTED = ("1", "B")
"""Units of counts, which vary so little that a forecast from the noise of speeds would be wrong."""


@dataclass(frozen=True)
class TypicalNoise:
    """``sd`` of the log ratio of two trials of a round; ``source``: how that is known, as the end of a sentence."""

    sd: float
    source: str


@dataclass(frozen=True)
class Foresight:
    """``fewest``: rounds to a verdict where all comparisons are clear. ``alone``: where one is, among others that show
    nothing.

    ``most``: rounds that the study allows. ``rounds``: differences (0.1 for 10 %), with the number of rounds in which
    about every second study sees them, ``None`` where nobody waits for it; also among others that show nothing.
    """

    comparisons: int
    most: int
    fewest: int
    alone: int
    noise: TypicalNoise
    rounds: tuple[tuple[float, int | None], ...]


def foresee(
    planned: Sequence[Planned], confidence: float, min_rounds: int, most: int, noise: TypicalNoise
) -> Foresight | None:
    """``None`` where nothing is compared."""
    counted = [(item, None) for item in planned if item.counted]
    if not counted:
        return None
    alpha = 1 - confidence
    needed = min(needed_by(counted, alpha))
    margins = {item.question.margin for item, _ in counted}
    # "Equivalent" has one side at a time: half of the evidence.
    alike = [fewest_rounds(2 * alpha / family_of(counted))] if any(margins) else []
    fewest, alone = (max(min_rounds, min([fewest_rounds(1 / e), *alike])) for e in (1 / alpha, needed))
    timed = {item.question.margin for item, _ in counted if item.question.unit not in _COUNTED}
    differences = sorted({*filter(None, timed), USUAL})
    rounds = tuple((by, rounds_to_see(by, noise.sd, 1 / needed)) for by in differences)
    return Foresight(len(counted), most, fewest, alone, noise, rounds)
