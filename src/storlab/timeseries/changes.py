"""Where a series changes its level: change points that autocorrelated noise does not imitate.

Noise that lingers looks like changes of the level to any search that takes samples as independent, or that estimates
the noise beforehand: an estimate that sees through changes sees through what lingers, too. So each candidate is
measured against how much the series wanders *on either side of it*, which needs no estimate of the noise: the
self-normalised statistic of X. Shao, X. Zhang, *Testing for change points in time series*, JASA 105, 2010. Its
largest value over windows of several lengths around each point is that of Z. Zhao, F. Jiang, X. Shao, *Segmenting time
series via self-normalisation*, Journal of the Royal Statistical Society B 84(5), 2022, so that several changes don't
hide each other; where it exceeds ``THRESHOLD`` the series is cut, and both parts are searched again.

The search runs over means of blocks, at most ``MOST_BLOCKS``, and longer ones where neighbours depend on each other.
``THRESHOLD`` is not the paper's, which holds for long series alone. It was chosen by simulation: in series of 30 to
3000 samples independent noise, heavy tails among it, hardly ever shows a change, AR(1) noise in at most about 5 of 100,
even where it remembers for as long as the whole series lasts (``tests/timeseries/test_changes.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from storlab.timeseries.steady import block_means
from storlab.timeseries.variability import Floats, robust_ar1

THRESHOLD = 400.0
MOST_BLOCKS = 256
LEAST_BLOCKS = 24
SHORTEST = 6
"""Blocks that a level must last, or a 20th of the series where that is more."""
_SCALES = (1, 4, 16)  # white noise on top hides from neighbours what lingers, not from means of some samples


@dataclass(frozen=True)
class Change:
    """At sample ``at`` (from 0) a new level begins; ``before`` and ``after`` are the means of the two levels."""

    at: int
    before: float
    after: float


def block_size(values: Floats) -> int:
    """Samples in a block, so that means of neighbouring blocks depend little on each other, and enough are left.

    The autocorrelation time (1 + φ) ÷ (1 − φ), with a φ that changes of the level hardly disturb.
    """
    n = len(values)
    size = max(-(-n // MOST_BLOCKS), 1)
    for scale in _SCALES:
        means = block_means(values, scale)
        if len(means) < 40:
            break
        phi = robust_ar1(means)
        if phi > 2 / math.sqrt(len(means)):  # beyond what independent samples show by chance
            size = max(size, math.ceil(scale * (1 + phi) / (1 - phi)))
    return max(1, min(size, n // LEAST_BLOCKS))


def change_points(blocks: Floats, least_step: float = 0.0) -> list[int]:
    """Positions in ``blocks`` (shape ``(m,)``) at which a new level begins, ascending.

    Changes by less than ``least_step``, in the unit of ``blocks``, are left out: first those that matter least.
    """
    found = sorted(_segment(blocks))
    while found:
        edges = np.array([0, *found, len(blocks)])
        sizes = np.diff(edges)
        steps = np.abs(np.diff(np.add.reduceat(blocks, edges[:-1]) / sizes))
        costs = steps**2 * sizes[:-1] * sizes[1:] / (sizes[:-1] + sizes[1:])
        small = np.flatnonzero(steps < least_step)
        if not len(small):
            break
        del found[int(small[np.argmin(costs[small])])]
    return found


def refined(values: Floats, positions: list[int], size: int) -> list[int]:
    """To the sample where ``positions`` of blocks of ``size`` samples are: where two levels fit the samples best.

    Each is looked for within a block of where it was found, between its neighbours.
    """
    starts = [at * size for at in positions]
    if size == 1:
        return starts
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    for i, at in enumerate(starts):
        low = starts[i - 1] if i else 0
        high = starts[i + 1] if i + 1 < len(starts) else len(values)
        tried = np.arange(max(at - size, low + 1), min(at + size + 1, high))
        left, right = (sums[tried] - sums[low]), (sums[high] - sums[tried])
        starts[i] = int(tried[np.argmax(left**2 / (tried - low) + right**2 / (high - tried))])
    return starts


def changes(values: Floats, starts: list[int]) -> tuple[Change, ...]:
    """The changes at these samples, with the means of ``values`` between them."""
    edges = [0, *starts, len(values)]
    levels = [float(values[low:high].mean()) for low, high in pairwise(edges)]
    return tuple(Change(at, levels[i], levels[i + 1]) for i, at in enumerate(starts))


def fitted(blocks: Floats, positions: list[int]) -> Floats:
    edges = [0, *positions, len(blocks)]
    spans = pairwise(edges)
    return np.concatenate([np.full(high - low, blocks[low:high].mean()) for low, high in spans])


def _segment(blocks: Floats) -> list[int]:
    found: list[int] = []
    parts = [(0, blocks)]
    while parts:
        start, part = parts.pop()
        statistic = self_normalised(part)
        at = int(np.argmax(statistic))
        if statistic[at] > THRESHOLD:
            found.append(start + at)
            parts += [(start, part[:at]), (start + at, part[at:])]
    return found


def self_normalised(x: Floats) -> Floats:
    """For each position of ``x`` (shape ``(m,)``) the largest statistic of a change right before it; 0 at the ends.

    With a window of l values before and r after, n = l + r, it is D² ÷ V: D the difference of the two means times
    l·r ÷ n^1.5, V the sum over both sides of (Sₜ − t ÷ l·Sₗ)² ÷ n², S being the sums from the side's begin.
    """
    m = len(x)
    found = np.zeros(m + 1)
    shortest = max(SHORTEST, m // 20)
    spread = float(x.std()) if m >= 2 * shortest else 0.0
    if spread <= 1e-9 * float(np.abs(x).max(initial=0.0)):
        return found  # nothing varies beyond rounding
    sums = np.concatenate([[0.0], np.cumsum((x - x.mean()) / spread)])
    lengths = [shortest * 2**power for power in range(m.bit_length()) if shortest * 2**power < m]
    at = np.arange(m + 1)
    wander = {length: _wander(sums, length) for length in lengths}  # of x[k : k + length]
    for left in lengths:
        for right in (length for length in lengths if left + length <= m):
            k, n = at[left : m - right + 1], left + right
            step = (sums[k] - sums[k - left]) / left - (sums[k + right] - sums[k]) / right
            difference = (left * right) ** 2 / n**3 * step**2
            noise = (wander[left][k - left] + wander[right][k]) / n**2
            # The floor keeps rounding from passing for a change, and a change without any noise from dividing by 0.
            np.maximum(found[k], difference / np.maximum(noise, 1e-12), out=difference)
            found[k] = difference
    return found


def _wander(sums: Floats, length: int) -> Floats:
    """Σ(Sₜ − t ÷ length·S)² over t from 1 to ``length``, S from k, for each k that has as many values after it."""
    last = len(sums) - length
    t = np.arange(len(sums), dtype=np.float64)
    begin, end = sums[:last], sums[length:]
    run = np.concatenate([[0.0], np.cumsum(sums)])
    squares = np.concatenate([[0.0], np.cumsum(sums**2)])
    moments = np.concatenate([[0.0], np.cumsum(t * sums)])
    k = np.arange(last)

    def over(total: Floats) -> Floats:
        return np.asarray(total[k + length + 1] - total[k + 1])

    whole = end - begin
    plain = over(squares) - 2 * begin * over(run) + length * begin**2
    rising = over(moments) - k * over(run) - begin * (length * (length + 1) / 2)
    ramp = length * (length + 1) * (2 * length + 1) / 6
    return np.asarray(np.maximum(plain - 2 * whole / length * rising + (whole / length) ** 2 * ramp, 0.0))
