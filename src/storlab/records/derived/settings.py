"""What trials changed of the settings of disks' queues and of kernels, and whether it is as before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from storlab.grouping import grouped
from storlab.records.run_folder import ChangedSetting, TrialRecord

_MOST = 6  # settings of one sentence


def warnings(records: Iterable[TrialRecord]) -> Iterator[str]:
    """For each cell, one for all that the same trials changed, and that ended alike."""
    changes = ((record, each) for record in records for each in record.changed)
    for (levels, ended), those in grouped(((_levels(r), _ended(each)), (r.trial, each)) for r, each in changes).items():
        by_name = grouped((each.name, (trial, each)) for trial, each in those)
        alike = grouped((tuple(dict.fromkeys(trial for trial, _ in of)), _said(of)) for of in by_name.values())
        for trials, said in alike.items():
            changed = f"{'1 trial' if len(trials) == 1 else f'{len(trials)} trials'} changed {', '.join(said[:_MOST])}"
            more = f" and {len(said) - _MOST} more settings" if len(said) > _MOST else ""
            yield f"{levels}: {changed}{more}, which {ended}"


def _levels(record: TrialRecord) -> str:
    return ", ".join(f"{factor}={level}" for factor, level in record.levels.items()) or "all trials"


def _said(changes: Sequence[tuple[int, ChangedSetting]]) -> str:
    """Of one setting. Nodes and trials may have had other values of it."""
    first, *others = dict.fromkeys((each.before or "nothing", each.after or "nothing") for _, each in changes)
    return f"{changes[0][1].name} from {first[0]} to {first[1]}{' (not in all alike)' if others else ''}"


def _ended(change: ChangedSetting) -> str:
    if change.now == change.before:
        return "was put back"
    return "was left so, as commands of the study can't do it" if change.now == change.after else "can't be put back"
