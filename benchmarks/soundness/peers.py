"""What others do with the same numbers: each says for every study whether it finds a difference.

``a`` and ``b`` are logs of shape ``(studies, rounds)``, as they came out.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.soundness.noise import Floats

ALPHA = 0.05
NOTABLE = 0.03
"""Whoever compares the means of three runs calls this much a difference."""

Found = NDArray[np.bool_]


def running(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n − 1) of the first n values of each row, for every n."""
    n = np.arange(1, values.shape[1] + 1)
    shift = values[:, :1]  # sums of squares of what is far from 0 lose their digits
    mean = np.cumsum(values - shift, axis=1) / n
    squares = np.maximum(np.cumsum((values - shift) ** 2, axis=1) - n * mean**2, 0.0)
    return mean + shift, np.sqrt(squares / np.maximum(n - 1, 1))


def peeked_t(a: Floats, b: Floats) -> Found:
    """A paired t test after every round from the fifth on, until it is significant."""
    ratios = a - b
    mean, sd = running(ratios)
    n = np.arange(1, ratios.shape[1] + 1)
    critical = stats.t.ppf(1 - ALPHA / 2, np.maximum(n - 1, 1))
    significant: Found = (np.abs(mean) * np.sqrt(n) > critical * sd)[:, 4:]
    return np.asarray(significant.any(axis=1))


def three_runs(a: Floats, b: Floats) -> Found:
    """The means of three runs of each differ by more than ``NOTABLE``."""
    ratio = np.exp(a[:, :3]).mean(axis=1) / np.exp(b[:, :3]).mean(axis=1)
    return np.asarray(np.abs(np.log(ratio)) > math.log1p(NOTABLE))


def benchstat(a: Floats, b: Floats, n: int = 10) -> Found:
    """benchstat's rule: the Mann-Whitney U test at 5 %, of ``n`` runs of each."""
    return _significant(mann_whitney(a[:, :n], b[:, :n])[:, -1:], np.array([n]))[:, 0]


def benchstat_in_a_row(machines: Floats, n: int = 10) -> Found:
    """The same, with all runs of a before all of b, as ``go test -count`` makes them. ``machines``: slots of time."""
    return benchstat(machines[:, :n], machines[:, n : 2 * n], n)


def peeked_benchstat(a: Floats, b: Floats) -> Found:
    """The same test after every round from the fifth on, until it is significant."""
    n = np.arange(1, a.shape[1] + 1)
    return np.asarray(_significant(mann_whitney(a, b), n)[:, 4:].any(axis=1))


RANGES = 3
"""Runs of each kernel: the fewest of which the kernel's test robot compares the ranges."""
EARLIER = 100
"""Commits by whose changes rustc-perf tells what is noise."""


def lkp(machines: Floats, n: int = RANGES) -> Found:
    """The kernel's test robot: ranges of ``n`` runs are apart by more than half of the difference of their middles.

    Source: intel/lkp-tests, ``lib/changed_stat.rb``, at 2409d6a4, with its ``gap_distance`` of 2. One kernel after the
    other: ``machines`` are slots of time.
    """
    a, b = (np.sort(np.exp(machines[:, at : at + n]), axis=1) for at in (0, n))
    gap = np.maximum(b[:, 0] - a[:, -1], a[:, 0] - b[:, -1])
    return np.asarray((gap > 0) & (gap > np.abs(a[:, n // 2] - b[:, n // 2]) / 2))


def rustc_perf(machines: Floats, earlier: int = EARLIER) -> Found:
    """rustc-perf: the change from one commit to the next is an outlier among those of ``earlier`` commits.

    That is, beyond their third quartile by more than three times the distance of the quartiles. One trial of each
    commit. Source: rust-lang/rustc-perf, ``docs/comparison-analysis.md``, at 0eeda871.
    """
    values = np.exp(machines[:, : earlier + 1])
    changes = np.abs(np.diff(values, axis=1)) / values[:, :-1]
    known, now = np.sort(changes[:, :-1], axis=1), changes[:, -1]
    half = known.shape[1] // 2
    first, third = np.median(known[:, :half], axis=1), np.median(known[:, -half:], axis=1)
    return np.asarray(now > third + 3 * (third - first))


def mann_whitney(a: Floats, b: Floats) -> Floats:
    """U of the first n of ``a`` and of ``b``, for every row and every n: pairs in which a is above (ties half)."""
    grown = np.empty(a.shape)
    for i in range(a.shape[1]):
        own_a, own_b = a[:, i : i + 1], b[:, i : i + 1]
        won = _above(own_a, b[:, :i]) + _above(a[:, :i], own_b) + _above(own_a, own_b)
        grown[:, i] = won
    return np.asarray(np.cumsum(grown, axis=1))


def _above(a: Floats, b: Floats) -> Floats:
    return np.asarray(((a > b).sum(axis=1) + (a >= b).sum(axis=1)) / 2)


def _significant(u: Floats, n: NDArray[np.int64]) -> Found:
    """By the normal approximation with continuity correction: for equal n of 4 and more, the exact test at 5 %."""
    off = np.maximum(np.abs(u - n**2 / 2) - 0.5, 0.0)
    return np.asarray(2 * stats.norm.sf(off / np.sqrt(n**2 * (2 * n + 1) / 12)) <= ALPHA)
