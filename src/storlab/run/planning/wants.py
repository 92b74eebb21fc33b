"""What a study wants beyond its own scratch, and whether this command line lets it have that.

A program, a device, a file of this machine, an address, a setting of its kernel: each is a value of a key whose type
says so (``storlab.reach``). What layers and loads do in a virtual machine is no want: its files and its kernel are its
own. What the keys of the machine itself name is one, for that is about the machine that runs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import StudyError
from storlab.layers.block.device import OF_LAB
from storlab.permission_words import Word
from storlab.reach import Found, reaching
from storlab.run.permissions import Permissions
from storlab.run.setup.units import units
from storlab.study.cells import Cell
from storlab.study.schema import StudyFile
from storlab.study.study import Study, load_study, named_studies
from storlab.study.toml_text import Path as Key
from storlab.units import shown

_DOES: dict[Word, str] = {
    "code": "is a program or code that runs with more rights than a load has",
    "device": "is a device, whose data may be lost",
    "write": "is outside the run's own scratch, and is written to",
    "read": "is a file of this machine, and gets into the run",
    "listen": "is an address at which others can connect",
    "kernel": "is a setting that all that runs on the machine shares",
}
_SCRATCH = StudyFile.model_fields["scratch"].default


@dataclass(frozen=True)
class Want:
    """``on``: the nodes that it is about; empty for this machine. ``key``: where the study names it first."""

    word: Word
    value: str
    key: Key
    on: str = ""

    @property
    def permission(self) -> str:
        """What permits it."""
        return f"{self.word}={self.value}"

    @property
    def option(self) -> str:
        """The same for a command line, ready to paste."""
        return f"--allow {shlex.quote(self.permission)}"

    @property
    def does(self) -> str:
        """What it can do, as the end of a sentence that begins with its value."""
        return _DOES[self.word]


def wants_of(study: Study, beside: Path | None) -> tuple[Want, ...]:
    """All that a study wants, each once. ``beside``: the study's own folder, whose files it may read."""
    found = [_want(each, (), "", beside) for each in reaching(study.model)]
    found += [_want(*each, beside) for cell in study.cells for each in _of_cell(cell)]
    return tuple({(want.word, want.value): want for want in reversed([*filter(None, found)])}.values())[::-1]


def _of_cell(cell: Cell) -> Iterator[tuple[Found, Key, str]]:
    for name, group in cell.nodes.items():
        yield from _at(reaching(group.spec()), ("nodes", name), name)
        if group.tcp is not None and group.network_of == "machine":
            yield from _at(reaching(group.tcp), ("nodes", name, "tcp"), name)
    if cell.network is not None:
        yield from _at(reaching(cell.network), ("network",))
    for unit in units(cell):
        if _on_machine(cell, unit.on):
            for link in unit.links:
                yield from _at(reaching(link.layer), link.origin, unit.on)
    for load in cell.yielding:
        where: Key = ("trial", "verify") if load.verifies else ("workload", load.name)
        for on in load.groups:
            if _on_machine(cell, on):
                yield from _at(reaching(load.workload), (*where, load.workload.kind), on)
    if cell.precondition is not None:
        yield from _at(reaching(cell.precondition), ("trial", "precondition", cell.precondition.kind))
    if cell.crash is not None and cell.crash.load is not None:
        load = cell.crash.load
        yield from _at(reaching(load.workload), ("crash", "load", load.workload.kind))
    for kind, probe in cell.probes.items():
        yield from _at(reaching(probe), ("probes", kind))


def _at(found: Iterable[Found], key: Key, on: str = "") -> Iterator[tuple[Found, Key, str]]:
    yield from ((each, key, on) for each in found)


def _on_machine(cell: Cell, group: str) -> bool:
    """Whether what is set up there is on a machine of the user's, and not in a guest."""
    return group not in cell.nodes or not cell.nodes[group].volatile


def _want(found: Found, key: Key, on: str, beside: Path | None) -> Want | None:
    """What a value wants, if it does: the lab's disk is the lab's to name, and the study's own files are its own."""
    value = found.value
    if value == OF_LAB or (found.word == "write" and value == _SCRATCH):
        return None
    if found.word == "read":
        path = Path(value)
        if not path.is_absolute():
            if not path.exists():
                return None  # no path: one of Debian's kernels, by its series
            value = str(path.resolve())
            if beside is not None and Path(value).is_relative_to(beside.resolve()):
                return None
    return Want(found.word, value, (*key, *found.key), on)


def refuse_unpermitted(study: Study, permissions: Permissions) -> tuple[Want, ...]:
    """What the study wants. Raises ``StudyError`` for what this command line does not permit, with what would."""
    wants = wants_of(study, permissions.beside)
    refused = [want for want in wants if not permissions.permit(want.word, want.value)]
    shipped = _of_shipped(study) if refused else set()
    refused = [want for want in refused if want.permission not in shipped]
    if refused:
        problems = [
            problem
            for want in refused
            for problem in study.problem(want.key, f"{shown(want.value)} {want.does}").problems
        ]
        options = " ".join(want.option for want in refused)
        last = study.problem((), f"allow it, if you trust the study and whoever wrote it: {options}").problems
        raise StudyError(study.file, [*problems, *last])
    return wants


def _of_shipped(study: Study) -> set[str]:
    """What a study that comes with Storlab wants as it comes; nothing of any other, whatever it is called."""
    for path in named_studies().values():
        if path.read_text("utf-8") == study.text:
            return {want.permission for want in wants_of(load_study(path), path.parent)}
    return set()
