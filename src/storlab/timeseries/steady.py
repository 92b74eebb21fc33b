"""From when on a series is steady, as SNIA and fio say; and how many samples at its start are warm-up.

SNIA: *Solid State Storage Performance Test Specification* 2.0, the definition of steady state: over a window
of five rounds, the largest and the smallest value lie at most 20 % of the window's average apart, and the least-squares
line through them rises or falls by at most 10 % of it. A round is a minute there, and a test has up to 25 of them.

fio: ``steadystate.c``. Over a window of samples of one second each, either the largest distance from the window's mean
(``iops:10%``, which is asked here), or the slope of the least-squares line (``iops_slope:10%``), is below a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from storlab.timeseries.variability import Floats

SNIA_WINDOW = 5
SNIA_RANGE = 0.20
SNIA_SLOPE = 0.10
SNIA_ROUND = 60.0  # s
SNIA_ROUNDS = 25

FIO_SAMPLE = 1.0  # s
FIO_LIMIT = 0.10
"""fio has no default: 10 %, which lets pass about what SNIA's range does."""


def block_means(values: Floats, size: int) -> Floats:
    """Means of ``size`` neighbours each (shape ``(n // size,)``); what is left over at the end is left out."""
    whole = len(values) // size
    return np.asarray(values[: whole * size].reshape(whole, size).mean(axis=1))


def snia_steady(rounds: Floats, window: int = SNIA_WINDOW) -> int | None:
    """How many ``rounds`` (shape ``(n,)``) had passed when the first steady window ended; ``None``: never."""
    return _first(_snia(rounds, window), window)


def snia_since(rounds: Floats, window: int = SNIA_WINDOW) -> int | None:
    """The index from which on every window of ``rounds`` (shape ``(n,)``) is steady; ``None``: the last one is not."""
    steady = _snia(rounds, window)
    if not len(steady) or not steady[-1]:
        return None
    moving = np.flatnonzero(~steady)
    return int(moving[-1]) + 1 if len(moving) else 0


def _snia(rounds: Floats, window: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether each window is steady, of each by its first round; empty where there is none."""
    if len(rounds) < window:
        return np.zeros(0, dtype=np.bool_)
    windows = sliding_window_view(rounds, window)
    mean = np.abs(windows.mean(axis=1))
    near = windows.max(axis=1) - windows.min(axis=1) <= SNIA_RANGE * mean
    flat = np.abs(_slopes(rounds, window)) * (window - 1) <= SNIA_SLOPE * mean
    return np.asarray(near & flat & (mean > 0))


@dataclass(frozen=True)
class Window:
    """What SNIA's rule looks at in one window: ``range`` and ``slope`` (from its first to its last value, along the
    least-squares line) as shares of its ``mean``; ``None`` for a mean of 0.
    """

    mean: float
    range: float | None
    slope: float | None

    @property
    def steady(self) -> bool:
        near = self.range is not None and self.range <= SNIA_RANGE
        return near and self.slope is not None and abs(self.slope) <= SNIA_SLOPE


def window_of(values: Floats) -> Window:
    """Of the whole of ``values`` (shape ``(n,)``, n ≥ 2)."""
    mean = float(values.mean())
    if mean == 0:
        return Window(mean, None, None)
    excursion = float(_slopes(values, len(values))[0]) * (len(values) - 1)
    return Window(mean, float(values.max() - values.min()) / abs(mean), excursion / abs(mean))


def fio_steady(samples: Floats, window: int, limit: float = FIO_LIMIT) -> int | None:
    """How many ``samples`` (shape ``(n,)``) had passed when the first steady window ended; ``None``: never.

    ``limit``, of the distance from the window's mean, is a share of that.
    """
    if window < 1 or len(samples) < window:
        return None
    windows = sliding_window_view(samples, window)
    mean = windows.mean(axis=1)
    found = np.maximum(windows.max(axis=1) - mean, mean - windows.min(axis=1))
    return _first((found < limit * np.abs(mean)) & (mean != 0), window)


def snia_time(values: Floats, interval: float) -> float | None:
    """Seconds until ``values``, one every ``interval`` s, are steady, as SNIA says; ``None``: never, or not to the end.

    A round is a minute, or a 25th of a series that is shorter than 25 minutes, but at least one sample.
    """
    size = _round_size(len(values), interval)
    rounds = block_means(values, size)
    found = snia_steady(rounds)
    return None if found is None or snia_since(rounds) is None else found * size * interval


def fio_time(values: Floats, interval: float, limit: float = FIO_LIMIT) -> float | None:
    """Seconds until ``values`` are steady by fio's deviation rule; ``None``: never.

    The window lasts as long as five of SNIA's rounds (fio leaves it to its user), of samples of a second, or of the
    series' own where these are longer, and of at least five samples.
    """
    size = max(1, round(FIO_SAMPLE / interval))
    window = max(SNIA_WINDOW, SNIA_WINDOW * _round_size(len(values), interval) // size)
    found = fio_steady(block_means(values, size), window, limit)
    return None if found is None else found * size * interval


def _round_size(n: int, interval: float) -> int:
    return max(1, min(round(SNIA_ROUND / interval), n // SNIA_ROUNDS))


def _slopes(values: Floats, window: int) -> Floats:
    if window < 2:
        return np.zeros(len(values))
    x = np.arange(window) - (window - 1) / 2
    return np.asarray(np.correlate(values - values.mean(), x, mode="valid") / (x @ x))


def _first(steady: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], window: int) -> int | None:
    at = np.flatnonzero(steady)
    return int(at[0]) + window if len(at) else None


BATCH = 5
LEAST_BATCHES = 10
"""Of fewer, half would be no base for anything."""


def mser(values: Floats, batch: int = BATCH) -> int | None:
    """How many of ``values`` (shape ``(n,)``) to leave out at the start as warm-up, a multiple of ``batch``, by MSER-5.

    Of all cuts in the first half, the one after which the mean of the rest has the smallest (nominal) standard error:
    K. P. White, *An effective truncation heuristic for bias reduction in simulation output*, Simulation 69(6), 1997;
    with means of five: K. P. White, M. J. Cobb, S. C. Spratt, *A comparison of five steady-state truncation heuristics
    for simulation*, Winter Simulation Conference 2000.

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
