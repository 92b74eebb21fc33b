"""The knee of latency against throughput: the load of maximal power, and how sure the rounds are of it.

Power is throughput ÷ mean latency. Where it is largest, a line through the origin touches the curve: below, a little
more latency buys much throughput, and above it is the other way round. Kleinrock 1979, "Power and deterministic rules
of thumb for probabilistic problems in computer communications", and 2018, "Internet congestion control using the power
metric". Unlike methods that look for the largest curvature (Satopää, Albrecht, Irwin and Raghavan 2011, "Finding a
'kneedle' in a haystack"), it depends neither on where the axes begin and end nor on a sensitivity that somebody chose.

Power that is largest at the first or last level has its maximum beyond the range, as far as anybody knows: if rounds
allow for no other level, there is no knee within it. Levels between which the knee lies are those of the bootstrap over
rounds (Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3): whole rounds are drawn again, so
what all levels of a round have in common stays so. It describes, and gets no verdict: of fewer than ten rounds a
bootstrap is too sure, so neither these levels nor "no knee" are said then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storlab.analysis.stats.anytime import Floats

ENOUGH = 10
"""Rounds from which on the levels around a knee hold it about as often as they should."""

_DRAWS = 2000
_SEED = 20180601  # any: the same rounds have the same knee


@dataclass(frozen=True)
class Located:
    """``index`` of the level with the most power, and the first and last index that the rounds allow for."""

    index: int
    low: int
    high: int


def power(throughput: Floats, latency: Floats) -> Floats:
    """log(throughput ÷ latency); both of shape ``(rounds, levels)``, positive."""
    return np.asarray(np.log(throughput) - np.log(latency))


def locate(log_power: Floats, confidence: float) -> Located:
    """``log_power``: shape ``(rounds, levels)``, at least one of each, the levels in ascending order."""
    rounds = len(log_power)
    best = int(log_power.mean(axis=0).argmax())
    if rounds == 1:
        return Located(best, 0, log_power.shape[1] - 1)
    drawn = np.random.default_rng(_SEED).integers(rounds, size=(_DRAWS, rounds))
    counts = np.zeros((_DRAWS, rounds))
    np.add.at(counts, (np.arange(_DRAWS)[:, None], drawn), 1.0)
    where = (counts @ log_power).argmax(axis=1)
    half = (1 - confidence) / 2
    low, high = np.quantile(where, [half, 1 - half], method="inverted_cdf")
    return Located(best, min(best, int(low)), max(best, int(high)))
