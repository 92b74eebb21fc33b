"""What ``broken`` of so many moments says of all moments: an exact interval.

C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 26 (1934). It covers at least as often as it says, for every number of moments.
"""

from __future__ import annotations

CONFIDENCE = 0.95


def exact_interval(broken: int, moments: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Lower and upper limit of the share of moments at which a cut breaks something. ``moments`` ≥ 1."""
    from scipy.special import betaincinv  # without what scipy.stats takes to load

    tail = (1 - confidence) / 2
    lower = float(betaincinv(broken, moments - broken + 1, tail)) if broken else 0.0
    upper = float(betaincinv(broken + 1, moments - broken, 1 - tail)) if broken < moments else 1.0
    return lower, upper
