"""The durable twin of a set-up that may lose what it acknowledged because its settings say so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from storlab.layers.base import Layer
from storlab.layers.database.base import DatabaseLayer
from storlab.study.cells import Cell

_FLUSH = "flush_at_commit"
_PUT_OFF = {"innodb_flush_log_at_trx_commit", "synchronous_commit", "fsync", "sync_binlog"}
"""Settings of servers by which a commit may be acknowledged before it is durable, where ``settings`` has them."""


@dataclass(frozen=True)
class Twin:
    """A cell whose databases flush at each commit, and all else of which is the same. ``keys``: what is different."""

    cell: Cell
    keys: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"without {', '.join(self.keys)}"


def durable_twin(cell: Cell) -> Twin | None:
    """``None`` where its databases are durable already, or it has none."""
    keys = tuple(key for each in cell.declared for layer in each.layers for key, _ in _relaxed(layer))
    if not keys:
        return None
    declared = tuple(replace(each, layers=tuple(map(_durable, each.layers))) for each in cell.declared)
    return Twin(replace(cell, declared=declared), keys)


def _durable(layer: Layer) -> Layer:
    """All databases are durable by default."""
    changes = {name: value for _, change in _relaxed(layer) for name, value in change.items()}
    return layer.model_copy(update=changes) if changes else layer


def _relaxed(layer: Layer) -> Iterator[tuple[str, dict[str, Any]]]:
    """What of a database's keys puts durability off, and what to change that it does not."""
    if not isinstance(layer, DatabaseLayer):
        return
    field = type(layer).model_fields.get(_FLUSH)
    asked = getattr(layer, _FLUSH, None)
    if field is not None and asked != field.default:
        yield f"{_FLUSH} = {str(asked).lower()}", {_FLUSH: field.default}
    kept = {name: value for name, value in layer.settings.items() if name not in _PUT_OFF}
    for name, value in layer.settings.items():
        if name not in kept:
            yield f"{name} = {value}", {"settings": kept}
