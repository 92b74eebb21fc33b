"""How long trials and rounds take: as expected before a run, by what was measured once it goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from storlab.layers.base import Keep
from storlab.records.run_folder import TrialRecord
from storlab.study.cells import Cell

OVERHEAD = 0.5  # s a trial, beyond its load: stacks, settling, fetching; replaced by what is measured once it runs


def trial_time(cell: Cell, overhead: float = OVERHEAD) -> float | None:
    """Seconds that a trial of this cell is expected to take; ``None`` where that is unknown."""
    return time_with(cell, [load.workload.duration(cell.trial.warm_up) for load in cell.loads], overhead)


def time_with(cell: Cell, times: Sequence[float | None], overhead: float) -> float | None:
    """As ``trial_time``, with loads that take so long."""
    beyond = cell.trial.settle.wait + overhead + start_time(cell, "trial")
    return None if None in times else max(time or 0.0 for time in times) + beyond


def start_time(cell: Cell, kept: Keep) -> float:
    """Seconds that nodes and layers of a cell that are kept for so long take to be set up, as far as they say so."""
    nodes = sum(group.start_time() * group.count for group in cell.nodes.values() if group.lasts == kept)
    return nodes + sum(layer.start_time() for unit in cell.units if unit.keep == kept for layer in unit.layers)


def trial_times(
    cells: Sequence[Cell], records: Iterable[TrialRecord], *, side_by_side: bool = False
) -> dict[int, float | None]:
    """Seconds that a trial of each of these cells takes: the mean of those that ended, else what is expected."""
    spent: dict[int, list[float]] = {}
    share = len(cells) if side_by_side else 1  # trials that go on at the same time
    for record in records:
        if record.duration is not None:
            spent.setdefault(record.cell, []).append(record.duration)
    return {
        cell.number: sum(spent[cell.number]) / len(spent[cell.number]) / share
        if cell.number in spent
        else trial_time(cell)
        for cell in cells
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
