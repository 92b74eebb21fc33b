"""How queues of disks and kernels were set: what a study may not have asked for, and what may decide all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.grouping import grouped
from storlab.layers.block.queue import QUEUE
from storlab.records.run_folder import TrialRecord


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
    """What changed while trials ran, and whether it is as before: a sentence for each setting of each cell."""
    changes = ((record, each) for record in records for each in record.changed)
    found = grouped(((record.cell, each.name, each.before, each.after, each.now), record) for record, each in changes)
    for (_, name, before, after, now), those in found.items():
        cell = ", ".join(f"{factor}={level}" for factor, level in those[0].levels.items()) or "all trials"
        trials = len({record.trial for record in those})
        how = "could not be put back"
        if now == before:
            how = "was put back"
        elif now == after:
            how = "was left so: the study's commands may not change it, so others did"
        change = f"changed from {before or 'nothing'} to {after or 'nothing'}"
        yield f"{cell}: {name} {change} in {'a trial' if trials == 1 else f'{trials} trials'}, and {how}"
