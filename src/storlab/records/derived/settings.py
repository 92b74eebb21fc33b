"""How queues of disks and kernels were set: what a study may not have asked for, and what may decide all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.grouping import grouped
from storlab.layers.block.queue_files import QUEUE
from storlab.records.run_folder import ChangedSetting, TrialRecord

_MOST = 6  # settings of one sentence


def settings_of(records: Iterable[TrialRecord]) -> dict[int, dict[str, str]]:
    """Cell → "read_ahead_kb of loop" → "128"; only what was the same in all of the cell's trials that are done."""
    by_cell = grouped((record.cell, dict(_settings(record))) for record in records if record.status == "done")
    return {
        cell: {name: text for name, text in each[0].items() if all(other.get(name) == text for other in each)}
        for cell, each in by_cell.items()
    }


def _settings(record: TrialRecord) -> Iterator[tuple[str, str]]:
    """Of layers of one name on several nodes, all values that there are."""
    found = grouped(
        (f"{name} of {layer['layer']}", str(values[name]))
        for layers in record.facts.values()
        for layer in layers
        for values in (layer, *(each for each in layer.values() if isinstance(each, dict)))
        for name in QUEUE
        if isinstance(values.get(name), str | int | float)
    )
    found |= grouped(each for settings in record.settings.values() for each in settings.items())
    for name, texts in found.items():
        yield name, ", ".join(sorted(set(texts)))


def warnings(records: Iterable[TrialRecord]) -> Iterator[str]:
    """What changed while trials ran, and whether it is as before: for each cell, one for all that ended alike."""
    changes = ((record, each) for record in records for each in record.changed)
    found = grouped(((record.cell, _ended(each)), (record, each)) for record, each in changes)
    for (_, ended), those in found.items():
        cell = ", ".join(f"{factor}={level}" for factor, level in those[0][0].levels.items()) or "all trials"
        said = dict.fromkeys(f"{e.name} from {e.before or 'nothing'} to {e.after or 'nothing'}" for _, e in those)
        trials = len({record.trial for record, _ in those})
        changed = f"{'1 trial' if trials == 1 else f'{trials} trials'} changed {', '.join(list(said)[:_MOST])}"
        more = f" and {len(said) - _MOST} more settings" if len(said) > _MOST else ""
        yield f"{cell}: {changed}{more}, which {ended}"


def _ended(change: ChangedSetting) -> str:
    if change.now == change.before:
        return "was put back"
    return "was left so, as commands of the study can't do it" if change.now == change.after else "can't be put back"
