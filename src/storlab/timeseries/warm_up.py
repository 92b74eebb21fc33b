"""How many samples at the start are warm-up: the rule MSER-5.

K. P. White, *An effective truncation heuristic for bias reduction in simulation output*, Simulation 69(6), 1997; with
means of five samples: K. P. White, M. J. Cobb, S. C. Spratt, *A comparison of five steady-state truncation heuristics
for simulation*, Winter Simulation Conference 2000. Of all cuts in the first half it takes the one after which the mean
of the rest has the smallest (nominal) standard error.
"""

from __future__ import annotations

import numpy as np

from storlab.timeseries.variability import Floats

BATCH = 5
LEAST_BATCHES = 10
"""Of fewer, half would be no base for anything."""


def mser(values: Floats, batch: int = BATCH) -> int | None:
    """How many of ``values`` (shape ``(n,)``) to leave out at the start, a multiple of ``batch``.

    ``None`` where that can't be told: there are fewer than ``LEAST_BATCHES`` batches, or the best cut lies at the end
    of the first half, so that there may be a better one beyond.
    """
    batches = len(values) // batch
    if batches < LEAST_BATCHES:
        return None
    means = values[: batches * batch].reshape(batches, batch).mean(axis=1)
    means = means - means.mean()  # sums of squares of large numbers would lose what varies
    last = batches // 2
    left = batches - np.arange(last + 1)
    sums = np.cumsum(means[::-1])[::-1][: last + 1]
    squares = np.cumsum(means[::-1] ** 2)[::-1][: last + 1]
    best = int(np.argmin((squares - sums**2 / left) / left**2))
    return None if best == last else best * batch
