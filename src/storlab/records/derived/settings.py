"""How the kernel's queues of a cell's disks were set: what a study may not have asked for, and what may decide all."""

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
        (f"{name} of {layer['layer']}", str(layer[name]))
        for layers in record.facts.values()
        for layer in layers
        for name in QUEUE
        if isinstance(layer.get(name), str | int | float)
    )
    for name, texts in found.items():
        yield name, ", ".join(sorted(set(texts)))
