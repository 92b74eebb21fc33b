"""What was watched underneath a load, brought to one operation of it, round by round.

A rate moves along with the load: who writes twice as fast flushes twice as often each second, and nothing is explained
by that. How much it takes for *one* operation does not, so amounts are divided by the load's operations; by its bytes
where it counts only these; and left as they are where it counts neither, as a command that has a fixed amount to do.

Which metrics these are, and what becomes of each, follows from where it comes from and how it is declared
(``MetricSpec``): a sum is an amount; a share, a mean or an extreme is taken as it is; rates, histograms, and statistics
that only say the same as others are left out. Of families (a number for each disk, each guest) there is that of the
disk under test, and of everything of which a load has one kind (operations).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import EFFECT_VARIANCE, FORESEEABLE, Floats, log_evidence_of_means
from storlab.analysis.stats.pairing import snap
from storlab.analysis.stats.signed_rank import fewest_rounds, log_evidence
from storlab.analysis.summary import Per
from storlab.base.text import grouped
from storlab.metrics import HISTOGRAMS, TARGET, Declarations, Key, MetricSpec, is_underneath

_AMOUNTS = ("1", "B", "s")
_OPEN_FAMILIES = ("operation", "percentile", "caller", "function", "group")
"""Words of families whose members are kinds of something, and not things that come and go."""
_TELLING = (None, 50.0, 99.0)
"""Percentiles: of one distribution the middle and the tail; others say much the same."""
_EXTREMES = ("min", "max")


@dataclass(frozen=True)
class Watched:
    """One metric of one cell: what it is, what it was divided by, and its unit then."""

    key: Key
    spec: MetricSpec
    per: Per
    unit: str


@dataclass(frozen=True, eq=False)
class Seen:
    """All that was watched in one cell. ``values``: shape ``(metrics, rounds)``, NaN where there is none.

    ``rates``: the same per second, of amounts to which all of the machine adds; NaN of all others. ``took``: seconds
    for each operation, or whatever amounts are divided by, shape ``(rounds,)``.
    """

    watched: tuple[Watched, ...]
    values: Floats
    rates: Floats
    took: Floats

    def of(self, rows: Sequence[int], columns: Sequence[int]) -> tuple[Floats, Floats]:
        at = np.ix_(rows, columns)
        return self.values[at], self.rates[at]


class Watch:
    """What was watched in each cell. ``trials``: ``cell``, ``round`` and, of those that are done, ``measured`` in s.

    ``partial``: cells whose loads don't count what they did in a warm-up, though probes do; there, operations are those
    of the mean rate over the whole time.
    """

    def __init__(
        self, recorded: Recorded, trials: pl.DataFrame, declared: Declarations, partial: frozenset[int] = frozenset()
    ) -> None:
        self._declared, self._partial, self._recorded = declared, partial, recorded
        self._place = {number: at for at, number in enumerate(sorted(recorded.values["round"].unique()))}
        self._seconds = self._measured(trials)
        rows = recorded.series.select("series", "cell", "source", "metric").iter_rows()
        self._series = grouped((cell, ((source, metric), number)) for number, cell, source, metric in rows)
        self._known: dict[int, Seen] = {}

    def columns(self, rounds: Sequence[int]) -> list[int]:
        """Where these rounds stand in ``Seen``."""
        return [self._place[number] for number in rounds]

    def of(self, cell: int) -> Seen:
        if cell not in self._known:
            self._known[cell] = self._seen(cell)
        return self._known[cell]

    def _measured(self, trials: pl.DataFrame) -> dict[int, Floats]:
        found: dict[int, Floats] = {}
        if "measured" in trials.columns:
            for cell, number, seconds in trials.select("cell", "round", "measured").drop_nulls().iter_rows():
                if number in self._place and seconds > 0:
                    found.setdefault(cell, self._nothing())[self._place[number]] = seconds
        return found

    def _nothing(self) -> Floats:
        return np.full(len(self._place), np.nan)

    def _seen(self, cell: int) -> Seen:
        every = dict(self._series.get(cell, ()))
        specs = {key: self._declared[key[0]].find(key[1]) for key in every}
        seconds = self._seconds.get(cell, self._nothing())
        per, amounts, took = self._load(cell, {key: spec for key, spec in specs.items() if not is_underneath(key[0])})
        watched, values, rates = list[Watched](), list[Floats](), list[Floats]()
        for key, spec in specs.items():
            if not (is_underneath(key[0]) and is_evidence(spec)):
                continue
            found = self._of(every[key])
            busy = spec.evidence == "busy"
            rates.append(found / seconds if spec.evidence == "shared" else self._nothing())
            found = found * seconds if busy else found
            amount = is_amount(spec)
            watched.append(Watched(key, spec, per if amount else "", "s" if busy else spec.unit))
            values.append(found / amounts if amount else found)
        empty = np.empty((0, len(self._place)))
        every_value, every_rate = (np.array(rows) if rows else empty for rows in (values, rates))
        return Seen(tuple(watched), every_value, every_rate, took)

    def _load(self, cell: int, specs: Mapping[Key, MetricSpec]) -> tuple[Per, Floats, Floats]:
        """What amounts are divided by, and how long each took: by the load's own rate, as programs start slowly."""
        seconds = self._seconds.get(cell, self._nothing())
        ways: tuple[tuple[Per, tuple[str, ...], str], ...] = (
            ("operation", ("operations",), "1/s"),
            ("byte", ("bytes", "bytes read", "bytes written"), "B/s"),
        )
        for per, quantities, rate in ways:
            rates = [key for key, spec in specs.items() if spec.quantity == "throughput" and spec.unit == rate]
            speed = self._total(cell, rates)
            if cell in self._partial:
                counted, found = rates, speed * seconds
            else:
                counted = [key for key, spec in specs.items() if spec.quantity in quantities]
                found = self._total(cell, counted)
            if counted:
                found = np.where(found > 0, found, np.nan)
                return per, found, 1 / np.where(speed > 0, speed, np.nan) if rates else seconds / found
        return "trial", np.ones(len(self._place)), seconds

    def _total(self, cell: int, counted: Iterable[Key]) -> Floats:
        every = dict(self._series.get(cell, ()))
        wholes = [(source, name) for source, names in grouped(counted).items() for name in _wholes(names)]
        return np.asarray(sum((self._of(every[key]) for key in wholes), np.zeros(len(self._place))))

    def _of(self, series: int) -> Floats:
        column = self._recorded.values["series"]
        begin, end = column.search_sorted(series, "left"), column.search_sorted(series, "right")
        part = self._recorded.values[begin:end].drop_nulls("value")
        found = self._nothing()
        found[[self._place[number] for number in part["round"]]] = part["value"].to_numpy()
        return found


def is_evidence(spec: MetricSpec) -> bool:
    """Whether a metric from underneath may say why. Of what nobody declared, nothing is known but its name."""
    if not spec.unit or spec.evidence == "none" or spec.quantity in HISTOGRAMS or spec.quantity == "throughput":
        return False
    if spec.granule or spec.percentile not in _TELLING or spec.statistic in _EXTREMES:
        return False
    return spec.subject in ("", TARGET) or spec.family in _OPEN_FAMILIES


def is_amount(spec: MetricSpec) -> bool:
    return spec.evidence == "busy" or (spec.across == "sum" and spec.unit in _AMOUNTS)


def _wholes(names: Iterable[str]) -> list[str]:
    """Without the parts of a total: of ``ios``, ``read.ios`` and ``write.ios`` the first."""
    every = list(names)
    return [name for name in every if not any(name.endswith(f".{other}") for other in every)]


# Which of many metrics differ between two levels, with a stated error for all of them together.
#
# Each metric is compared round by round by x: the log ratio of both sides; where one is 0 in any round, the relative
# difference (a − b) / (a + b) instead, which tells the same apart, is 1 where b is 0, and knows no infinity. What is
# equal in every round says nothing and is no part of the family.
#
# A metric is *named* if all of this holds:
#
# 1. Its evidence by the t martingale of ``anytime`` reaches what closed testing asks of it among all metrics of the
# comparison (``closed_testing``), each a family of its own, so that the chance that any is named that does not differ
# is at most α. Of m metrics of which nothing is known that is nearly m/α, Bonferroni's correction; what differs
# clearly no longer makes the others pay. 2. Its signs and ranks (``signed_rank``) alone are evidence of 1/α for that
# side. 3. The typical ratio lies beyond the margin of its kind: bytes that differ by 0.1 % explain nothing.
#
# ``differences`` leaves out what is small beside others of its kind, after that.
#
# Why not signs and ranks in 1, as verdicts have it: a round at most doubles that evidence, so among 40 metrics none
# could be named before round 11, while counts, which are what explains, hardly vary and are clear in six. The price
# is an assumption: that the x of a metric that does not differ are roughly normal. 2 is the guard where they are not:
# no line rests on a few odd rounds, and each line by itself is wrong at most with a chance of α, whatever the noise.
# Simulations on machines of every kind say what all of them come to (``docs/explanation/why.md``).

Flags = NDArray[np.bool_]

_FEWEST, _MOVING = 6, 2.0
"""Of the rank correlation of two ratios: rounds, and standard errors, that make 95 %. By itself; it names nothing."""
_SAME = 0.02
"""Ratios that differ by less than this share, in every round, are one and the same."""


@dataclass(frozen=True, eq=False)
class Paired:
    """Both sides of metrics in the same rounds, a row each (shape ``(metrics, rounds)``).

    ``x`` as above, ``logs`` whether it is log ratios. ``usable``: false where a value is missing, infinite or negative.
    """

    a: Floats
    b: Floats
    x: Floats
    logs: Flags
    usable: Flags

    @property
    def varies(self) -> Flags:
        return self.usable & self.x.any(axis=1)


def paired(a: Floats, b: Floats) -> Paired:
    """``a`` and ``b`` (shape ``(metrics, rounds)``)."""
    with np.errstate(all="ignore"):
        usable: Flags = np.all(np.isfinite(a) & np.isfinite(b) & (a >= 0) & (b >= 0), axis=1)
        logs: Flags = usable & np.all((a > 0) & (b > 0), axis=1)
        # Difference of logs: the quotient of two extreme values could overflow.
        x = np.where(logs[:, None], np.log(a) - np.log(b), (a - b) / (a + b))
    x = np.where(np.isfinite(x) & usable[:, None], x, 0.0)  # 0 ÷ 0: both have none
    return Paired(a, b, snap(x), logs, usable)


def pooled(parts: Sequence[Paired]) -> Paired:
    if len(parts) == 1:
        return parts[0]
    logs: Flags = np.all([part.logs for part in parts], axis=0)
    relative: Floats = np.mean([_relative(part) for part in parts], axis=0)
    x: Floats = np.where(logs[:, None], np.mean([part.x for part in parts], axis=0), relative)
    usable: Flags = np.all([part.usable for part in parts], axis=0)
    a, b = (np.mean([getattr(part, side) for part in parts], axis=0) for side in ("a", "b"))
    return Paired(a, b, snap(x), logs, usable)


def _relative(pair: Paired) -> Floats:
    return np.where(pair.logs[:, None], np.tanh(pair.x / 2), pair.x)


@dataclass(frozen=True)
class Named:
    """One row that differs: the log of its evidence, and the evidence that it needed."""

    row: int
    evidence: float
    needed: float


def named(pair: Paired, margins: Sequence[float], alpha: float) -> list[Named]:
    """Those that differ, in their order. ``margins``: of each row."""
    rows = np.flatnonzero(pair.varies)
    if len(rows) == 0 or pair.x.shape[1] == 0:
        return []
    evidence = log_evidence_of_means(pair.x[rows])
    needed = needed_by(evidence, alpha)
    edge = np.log1p(np.asarray(margins, dtype=np.float64)[rows])
    edge = np.where(pair.logs[rows], edge, np.tanh(edge / 2))
    large = np.abs(np.median(pair.x[rows], axis=1)) > edge
    return [
        Named(int(row), float(log), float(need))
        for row, log, need, is_large in zip(rows, evidence, needed, large, strict=True)
        if is_large and log >= math.log(need) and _is_steady(pair.x[row], alpha)
    ]


def needed_by(evidence: Floats, alpha: float) -> Floats:
    """What closed testing asks of each of these logs of evidence, each being a family of its own."""
    target = 1 / alpha
    missing = np.maximum(target - np.exp(np.minimum(evidence, math.log(2 * target))), 0.0)
    return np.asarray(target + missing.sum() - missing)


def _is_steady(x: Floats, alpha: float) -> bool:
    side = 1 if float(x.mean()) > 0 else -1
    return log_evidence(x, 0.0, side) >= math.log(2 / alpha)


def rounds_needed(metrics: int, alpha: float) -> int:
    """The fewest rounds in which any of so many metrics can be named, if nothing is known of the others."""
    target = math.log(max(metrics, 1) / alpha)
    n = fewest_rounds(alpha)
    while (n - 1) / 2 * math.log1p(n * EFFECT_VARIANCE) < target and n < FORESEEABLE:
        n += 1
    return n


def sizes(pair: Paired) -> Floats:
    """How large each difference is, from 0 (none) to 1 (one side has nothing)."""
    return np.asarray(np.abs(np.median(_relative(pair), axis=1)))


def correlation(x: Floats, y: Floats) -> float:
    """Of ranks (Spearman 1904), ties averaged; 0 where one of them does not vary."""
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (x, y)]
    norm = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / norm if norm > 0 else 0.0


def moves_together(x: Floats, y: Floats) -> int:
    """1 where the two rise and fall together from round to round, −1 where against each other, 0 where unclear.

    By Fisher's z of the rank correlation, two-sided, of 6 rounds or more. Fieller, Hartley and Pearson 1957, "Tests for
    rank correlation coefficients. I", for its variance.
    """
    n = len(x)
    if n < _FEWEST:
        return 0
    rho = correlation(x, y)
    if abs(rho) < 1 and abs(math.atanh(rho)) * math.sqrt((n - 3) / 1.06) < _MOVING:
        return 0
    return 1 if rho > 0 else -1


def says_the_same(x: Floats, others: Floats) -> Flags:
    """Of each row of ``others``: whether it is the log ratio ``x`` in every round, or that of the inverse."""
    least = _SAME * np.minimum(abs(float(np.median(x))), np.abs(np.median(others, axis=1)))[:, None]
    found: Flags = np.all(np.abs(others - x) <= least, axis=1) | np.all(np.abs(others + x) <= least, axis=1)
    return found


def _ranks(values: Floats) -> Floats:
    rounded = np.round(values, 12)
    below = (rounded[None, :] < rounded[:, None]).sum(axis=1)
    same = (rounded[None, :] == rounded[:, None]).sum(axis=1)
    return np.asarray(below + (same + 1) / 2, dtype=np.float64)
