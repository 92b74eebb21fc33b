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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.summary import Per
from storlab.grouping import grouped
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

    ``rates``: the same per second, of amounts to which all of the machine adds; NaN of all others.
    """

    watched: tuple[Watched, ...]
    values: Floats
    rates: Floats

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
        per, amounts = self._load(cell, {key: spec for key, spec in specs.items() if not is_underneath(key[0])})
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
        return Seen(tuple(watched), np.array(values) if values else empty, np.array(rates) if rates else empty)

    def _load(self, cell: int, specs: Mapping[Key, MetricSpec]) -> tuple[Per, Floats]:
        seconds = self._seconds.get(cell, self._nothing())
        ways: tuple[tuple[Per, tuple[str, ...], str], ...] = (
            ("operation", ("operations",), "1/s"),
            ("byte", ("bytes", "bytes read", "bytes written"), "B/s"),
        )
        for per, quantities, rate in ways:
            if cell in self._partial:
                counted = [key for key, spec in specs.items() if spec.quantity == "throughput" and spec.unit == rate]
                found = self._total(cell, counted) * seconds
            else:
                counted = [key for key, spec in specs.items() if spec.quantity in quantities]
                found = self._total(cell, counted)
            if counted:
                return per, np.where(found > 0, found, np.nan)
        return "trial", np.ones(len(self._place))

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
