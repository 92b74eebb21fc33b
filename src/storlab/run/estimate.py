"""How long a run still takes, from what its trials took so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from storlab.records.trial_record import TrialRecord
from storlab.run.plan import Plan, trial_time


def trial_times(plan: Plan, records: Iterable[TrialRecord]) -> dict[int, float | None]:
    """Seconds that a trial of each supported cell takes: the mean of those that ended, else what is expected."""
    spent: dict[int, list[float]] = {}
    for record in records:
        if record.duration is not None:
            spent.setdefault(record.cell, []).append(record.duration)
    return {
        cell.number: sum(spent[cell.number]) / len(spent[cell.number]) if cell.number in spent else trial_time(cell)
        for cell in plan.supported
    }


def time_left(
    times: Mapping[int, float | None], rest_of_round: Sequence[int], rounds_after: tuple[int, int]
) -> tuple[float, float] | None:
    """Seconds, at least and at most: the cells left in this round, then from so many to so many more rounds.

    ``None`` while the time of some cell is not known.
    """
    if None in times.values():
        return None
    rest = sum(times.get(cell) or 0.0 for cell in rest_of_round)
    whole = sum(time or 0.0 for time in times.values())
    return rest + rounds_after[0] * whole, rest + rounds_after[1] * whole
