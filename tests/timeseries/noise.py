"""Series whose truth is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ar1(rng: np.random.Generator, n: int, phi: float) -> Floats:
    """``n`` values of standard deviation 1, of which each keeps ``phi`` of the last."""
    shocks = rng.standard_normal(n) * np.sqrt(1 - phi**2)
    values = np.empty(n)
    last = rng.standard_normal()
    for at in range(n):
        values[at] = last = phi * last + shocks[at]
    return values


def regimes(rng: np.random.Generator, n: int, switches: float) -> Floats:
    """``n`` values of noise with standard deviation 1, about one of two levels 4 apart; so many switches on average."""
    level = np.cumsum(rng.random(n) < switches / n) + rng.integers(2)
    return np.asarray(4.0 * (level % 2) + rng.standard_normal(n))
