"""A study whose load says what it was promised, with a log underneath the disk that it is promised on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from storlab.base.errors import UserError
from storlab.layers.attach.attachment import AttachmentLayer
from storlab.layers.attach.blockdev import WriteLogLayer
from storlab.layers.base import Layer
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.fs.mkfs import MkfsLayer
from storlab.layers.fs.mount import MountLayer
from storlab.layers.resources import Server
from storlab.layers.stack import type_errors
from storlab.study.cells import HOST, Cell, Load, Target
from storlab.study.chains import Chain, Declared
from storlab.study.study import Study
from storlab.workloads.base import Pages, Witness

# The durable twin of a set-up that may lose what it acknowledged because its settings say so.

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


@dataclass(frozen=True)
class Witnessed:
    """The load of a cell that says what it was promised, and the chain of the guest that it works on."""

    load: Load
    target: Target
    chain: Chain

    @property
    def witness(self) -> Witness:
        assert isinstance(self.load.workload, Witness)
        return self.load.workload

    @property
    def attachment(self) -> AttachmentLayer:
        assert isinstance(self.chain.crossing, AttachmentLayer)
        return self.chain.crossing

    @property
    def pages(self) -> Pages | None:
        """What is written in place: by the load itself, or by the database that it commits to."""
        database = next((layer for layer in self.above if isinstance(layer, DatabaseLayer)), None)
        return self.witness.pages() if database is None else Pages(*database.torn_pages())

    @property
    def above(self) -> tuple[Layer, ...]:
        return tuple(link.layer for link in self.chain.above[1:])


def logged_study(study: Study) -> Study:
    """The same study with a log underneath each such disk. Raises ``UserError``, with what of it cannot be checked."""
    return replace(study, cells=tuple(_logged(cell) for cell in study.cells))


def witnessed(cell: Cell) -> Witnessed:
    """Raises ``UserError`` where nothing in it can tell what a power cut took."""
    loads = [load for load in cell.loads if isinstance(load.workload, Witness)]
    if not loads:
        raise UserError(
            "no load of this study can tell what a power cut took: add one that commits, such as "
            "[workload.commits] with ledger = {}"
        )
    if len(loads) > 1 or len(loads[0].on) != 1 or cell.groups[loads[0].on[0].group].count != 1:
        raise UserError("a crash check follows one load on one node, and this study has several that commit")
    (target,) = loads[0].on
    chain = cell.chain(*((target.group, target.chain) if target.chain else (target.group,)))
    if chain is None or not isinstance(chain.crossing, AttachmentLayer):
        raise UserError(
            f"load {loads[0].name}: a crash check logs what reaches the disk of a virtual machine, and this one has "
            'none: write kind = "vm" in its nodes, and virtio-blk in its stack'
        )
    if chain.source != HOST:
        raise UserError(
            f"load {loads[0].name}: a crash check logs images that are made on this machine, and its disk comes from "
            f"{chain.source}: leave from out"
        )
    return Witnessed(loads[0], target, chain)


def _logged(cell: Cell) -> Cell:
    if cell.crash is not None and cell.crash.load is not None:
        cell = replace(cell, loads=(*cell.loads, cell.crash.load))
    found = witnessed(cell)
    for load in cell.loads:
        away = next((name for name in load.groups if cell.groups[name].session), None)
        if away is not None:
            raise UserError(f"load {load.name}: in a crash check all loads run in virtual machines, and {away} is none")
    for layer in found.above:
        if not isinstance(layer, MkfsLayer | MountLayer) and not issubclass(layer.gives, Server):
            raise UserError(
                f"layer {layer.layer}: nothing here can recover it after a power cut; a crash check knows file systems "
                "that mkfs makes and mount mounts, and servers on them"
            )
    mine = (found.target.group, found.target.chain)
    declared = tuple(_with_log(each) if (each.group, each.name) == mine else each for each in cell.declared)
    logged = replace(cell, declared=declared)
    chain = logged.all_chains[mine]
    for position, message in type_errors([link.layer for link in chain.links], list(found.load.workload.takes())):
        at_fault = chain.links[position].layer.layer
        raise UserError(f"a crash check logs what is written to a raw image file: {at_fault}: {message}")
    return logged


def _with_log(each: Declared) -> Declared:
    at = next(index for index, layer in enumerate(each.layers) if isinstance(layer, AttachmentLayer))
    layers = (*each.layers[:at], WriteLogLayer(), *each.layers[at:])
    return replace(each, layers=layers, origins=(*each.origins[:at], each.origins[at], *each.origins[at:]))
