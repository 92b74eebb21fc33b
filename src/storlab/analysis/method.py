"""How a summary's numbers were made, as one paragraph for the reader, who is told of nothing that was not done."""

from __future__ import annotations

from collections.abc import Sequence

from storlab.analysis.anytime import EFFECT_VARIANCE
from storlab.analysis.design import Design
from storlab.analysis.summary import Comparison, Estimate
from storlab.analysis.wording import percent, plural

COMPARED = (
    "Levels are compared by round: the logarithm of the ratio of two trials of the same round, so that drift "
    "of the machine cancels. The interval of the mean log ratio is an anytime-valid t interval (Gaussian "
    "mixture, effect variance {g:g}): it holds though one looks after every round. A verdict also needs "
    "signed-rank evidence, which holds for noise of any shape, {order}; and both "
    "must hold without any single outlier round. {corrected} No verdict is given before {min_rounds} rounds."
)
DRAWN = "as the order within rounds is random"
NOT_DRAWN = "as far as the order within rounds favours neither side (that it was drawn at random is not known)"
DESCRIBED = (
    "Nothing was compared. Means are over rounds; their intervals are anytime-valid t intervals (Gaussian mixture, "
    "effect variance {g:g}) at {confidence}, each for itself and not corrected for how many there are."
)
SINGLE = "Nothing was compared. Each number is of one round, which has no interval."
SAMPLES = "Samples within a trial are not repeats and never count as such."


def method_of(
    design: Design, estimates: Sequence[Estimate], comparisons: Sequence[Comparison], family: int, alpha: float
) -> str:
    """The paragraph; empty where nothing was measured. ``alpha``: of each of the ``family`` of comparisons."""
    if not estimates:
        return ""
    if any(c.ratio is not None for c in comparisons):
        corrected = f"The confidence of {percent(design.confidence)} holds for the whole study"
        if family > 1:
            corrected += f": each of its {plural(family, 'comparison')} is held to {percent(1 - alpha)}"
        order = NOT_DRAWN if design.order else DRAWN
        told = COMPARED.format(g=EFFECT_VARIANCE, order=order, corrected=f"{corrected}.", min_rounds=design.min_rounds)
    elif any(e.low is not None for e in estimates):
        told = DESCRIBED.format(g=EFFECT_VARIANCE, confidence=percent(design.confidence))
    else:
        told = SINGLE
    return f"{told} {SAMPLES}"
