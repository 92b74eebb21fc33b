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
