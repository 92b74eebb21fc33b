"""What a study wants beyond its own scratch.

What layers and loads do in a virtual machine is no want: its files and its kernel are its own. What the keys of the
machine itself name is one, for that is about the machine that runs it; and so is what is sent there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from storlab.base.errors import Problem
from storlab.base.reach import Found, Key, reaching
from storlab.layers.block.device import OF_LAB
from storlab.run.permissions import (
    Permissions,
    Want,
    each_once,
    is_brought,
    is_closed,
    paths_among,
    refuse,
    unpermitted,
    want_of,
)
from storlab.study.cells import Cell
from storlab.study.schema import StudyFile
from storlab.study.study import Study, load_study, named_studies

_SCRATCH = StudyFile.model_fields["scratch"].default


def wants_of(study: Study, beside: Path | None) -> tuple[Want, ...]:
    """All that a study wants, each once. ``beside``: the study's own folder, whose files it may read."""
    found: list[tuple[Found, Key, str]] = [(each, (), "") for each in reaching(study.model)]
    found += [each for cell in study.cells for each in _of_cell(cell)]
    if beside is None:
        found += _left_behind(study)
    others = (("device", OF_LAB), ("write", _SCRATCH))  # what it leaves to others: the lab's disk is the lab's to name
    return each_once(want_of(*each, beside) for each in found if (each[0].word, each[0].value) not in others)


def _of_cell(cell: Cell) -> Iterator[tuple[Found, Key, str]]:
    for name, group in cell.nodes.items():
        yield from _at(reaching(group.spec()), ("nodes", name), name)
        if group.tcp is not None and group.network_of == "machine":
            yield from _at(reaching(group.tcp), ("nodes", name, "tcp"), name)
        for setting in () if group.volatile else group.settings:
            yield Found((setting,), "kernel", setting), ("nodes", name, "settings"), name
    if cell.network is not None:
        yield from _at(reaching(cell.network), ("network",))
    for unit in cell.units:
        if _on_machine(cell, unit.on):
            for link in unit.links:
                yield from _at(reaching(link.layer), link.origin, unit.on)
    for load in cell.yielding:
        where: Key = ("trial", "verify") if load.verifies else ("workload", load.name)
        for on in load.groups:
            found: Iterable[Found] = reaching(load.workload)
            if not _on_machine(cell, on):  # in a guest a program has no more rights than others there, but is read here
                found = (Found(each.key, "read", each.value) for each in found if each.sent)
            yield from _at(found, (*where, load.workload.kind), on)
    if cell.precondition is not None:
        yield from _at(reaching(cell.precondition), ("trial", "precondition", cell.precondition.kind))
    if cell.crash is not None and cell.crash.load is not None:
        load = cell.crash.load
        yield from _at(reaching(load.workload), ("crash", "load", load.workload.kind))
    for kind, probe in cell.probes.items():
        yield from _at(reaching(probe), ("probes", kind))


def _at(found: Iterable[Found], key: Key, on: str = "") -> Iterator[tuple[Found, Key, str]]:
    yield from ((each, key, on) for each in found)


def named_files(cell: Cell) -> list[str]:
    """Words of a cell's commands, and files that its loads read: among these are those that its author brings along."""
    loads = (load.workload for load in cell.yielding)
    read = [found.value for load in loads for found in reaching(load) if found.word == "read"]
    return [*(word for argv in cell.commands for word in argv), *read]


def _left_behind(study: Study) -> Iterator[tuple[Found, Key, str]]:
    """Files in closed folders, which loads saw if they lay beside the study: a run's folder alone can't prove that."""
    cells = [cell for cell in study.cells if any(_on_machine(cell, on) for load in cell.loads for on in load.groups)]
    named = dict.fromkeys(path for cell in cells for path in paths_among(named_files(cell)))
    for path in named:
        if is_brought(Path(path).parent, path) and is_closed(Path(path).parent):
            yield Found((), "read", path), ("workload",), ""


def _on_machine(cell: Cell, group: str) -> bool:
    """Whether what is set up there is on a machine of the user's, and not in a guest."""
    return group not in cell.nodes or not cell.nodes[group].volatile


def refuse_unpermitted(study: Study, permissions: Permissions) -> tuple[Want, ...]:
    """What the study wants. Raises ``StudyError`` for what this command line does not permit, with what would."""
    wants = wants_of(study, permissions.beside)
    refused = unpermitted(wants, permissions)
    shipped = _of_shipped(study) if refused else set()

    def problem(key: Key, message: str) -> Problem:
        return study.problem(key, message).problems[0]

    refuse(study.file, [want for want in refused if want.permission not in shipped], problem)
    return wants


def _of_shipped(study: Study) -> set[str]:
    """What a study that comes with Storlab wants as it comes; nothing of any other, whatever it is called."""
    for path in named_studies().values():
        if path.read_text("utf-8") == study.text:
            return {want.permission for want in wants_of(load_study(path), path.parent)}
    return set()
