"""What trials changed of the settings of disks' queues and of kernels, and whether it is as before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from storlab.findings.runs import SettingsChanged
from storlab.grouping import grouped
from storlab.records.run_folder import ChangedSetting, TrialRecord


def warnings(records: Iterable[TrialRecord]) -> Iterator[SettingsChanged]:
    """For each cell, one for all that the same trials changed, and that ended alike."""
    changes = ((record, each) for record in records for each in record.changed)
    for (levels, ended), those in grouped(((_levels(r), _ended(each)), (r.trial, each)) for r, each in changes).items():
        by_name = grouped((each.name, (trial, each)) for trial, each in those)
        alike = grouped((tuple(dict.fromkeys(trial for trial, _ in of)), _setting(of)) for of in by_name.values())
        for trials, changed in alike.items():
            yield SettingsChanged(levels, len(trials), tuple(changed), ended)


def _levels(record: TrialRecord) -> str:
    return ", ".join(f"{factor}={level}" for factor, level in record.levels.items()) or "all trials"


def _setting(changes: Sequence[tuple[int, ChangedSetting]]) -> tuple[str, str, str, bool]:
    first, *others = dict.fromkeys((each.before or "nothing", each.after or "nothing") for _, each in changes)
    return changes[0][1].name, *first, not others


def _ended(change: ChangedSetting) -> Literal["put back", "left", "stuck"]:
    if change.now == change.before:
        return "put back"
    return "left" if change.now == change.after else "stuck"
