"""When checkpoints were, by what a database answers: it counts them, or says how far the last one came.
And how far they slow a load down.

PostgreSQL counts a checkpoint as it begins, but tells of a forced one only at its end; its control file has the second
at which the last finished one began. InnoDB has no beginning: it writes pages back until its checkpoint can move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from storlab.measurements import Measurements
from storlab.metrics import CHECKPOINT, Value
from storlab.probes.server.asked import BEGAN, COUNT, NOW, REACHED, SPECS
from storlab.timeseries.dips import Event, dips

_ONE = 2.0  # s: InnoDB moves its checkpoint once a second for as long as it writes pages back


@dataclass(frozen=True)
class Look:
    """One answer: seconds on the node's monotonic clock, and its numbers by name."""

    t: float
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class Checkpoint:
    """Between which times it was, as far as answers show; ``end`` is ``None`` where it did not end."""

    begin: float
    end: float | None


def checkpoints(looks: Sequence[Look]) -> list[Checkpoint]:
    """In their order, of all answers, those before and after the measured phase among them."""
    return list(_moves(looks) if any(REACHED in look.numbers for look in looks) else _counted(looks))


def _counted(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    begun: float | None = None  # one that was counted and has not ended
    for before, after in pairwise(looks):
        counted = after.numbers.get(COUNT, 0) > before.numbers.get(COUNT, 0)
        ended = _differs(before, after, BEGAN)
        if counted and begun is not None:
            yield Checkpoint(begun, before.t)
            begun = None
        if ended:
            since = after.numbers.get(NOW, 0) / 1000 - after.numbers[BEGAN]
            earliest = max(min(before.t, after.t - since), looks[0].t)
            yield Checkpoint(begun if begun is not None else earliest, after.t)
            begun = None
        elif counted:
            begun = before.t
    if begun is not None:
        yield Checkpoint(begun, None)


def _moves(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    """Each time in which it moved again and again is one."""
    begun = moved = 0.0
    running = False
    for before, after in pairwise(looks):
        if running and before.t - moved > _ONE:
            yield Checkpoint(begun, moved)
            running = False
        if _differs(before, after, REACHED):
            begun, running, moved = (begun if running else before.t), True, after.t
    if running:
        yield Checkpoint(begun, moved if looks[-1].t - moved > _ONE else None)


def _differs(before: Look, after: Look, name: str) -> bool:
    return name in before.numbers and name in after.numbers and before.numbers[name] != after.numbers[name]


def checkpoint_dips(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> Iterator[Value]:
    """Median and worst of a trial's checkpoints, held against the series of the load; none if there was no checkpoint.

    Several loads, or several servers, would say nothing of each other: of these there is none either.
    """
    rates = [each.series.filter(pl.col("job").is_null(), metric="tps").sort("t") for each in loads]
    marks = [each.series.filter(metric=CHECKPOINT[1]).sort("t") for each in seen]
    if len(rates) != 1 or len(marks) != 1:
        return
    (rate,), (mark,) = rates, marks
    events = [Event(begin, begin + took) for begin, took in mark.select("t", "value").iter_rows()]
    found = [each for each in dips(rate["t"].to_numpy(), rate["value"].to_numpy(), events) if each is not None]
    for of in ("depth", "length") if found else ():
        for which, fold in (("median", np.median), ("max", np.max)):
            value = float(fold([getattr(each, of) for each in found]))
            yield SPECS[f"checkpoint.dip.{of}.{which}"].value(value)
