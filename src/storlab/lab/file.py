"""A lab file: hosts, groups, and the user's own commands that make, reserve and release them.

Three forms: this one, in TOML; the JSON that ``ansible-inventory --list`` prints; and whatever else Ansible reads as an
inventory, where it is installed. Commands are only in the first, which is a file of the user's that the command line
names: no study can bring one, and none is found by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from storlab.below import opened_below
from storlab.errors import Problem, StudyError, UserError
from storlab.lab.ansible import inventory_of, is_json, machines_of
from storlab.lab.commands import printed
from storlab.limits import STUDY_TEXT
from storlab.reach import Beside, OwnCommand
from storlab.reading import read_file
from storlab.study.machines import Host, HostName, Machines
from storlab.study.messages import explain
from storlab.study.toml_text import as_written, line_of, positions, read_toml
from storlab.text import printable

VARIABLE = "STORLAB_LAB"
"""The environment's name for the lab file where no ``--lab`` is given."""

Words = Annotated[tuple[Annotated[OwnCommand, Field(min_length=1)], ...], Field(min_length=1)]


class LabFile(Machines):
    """A lab file. A host is a table ``[hosts.NAME]``, which may be empty."""

    inventory: Beside | None = Field(
        None, description="An Ansible inventory beside this file, whose hosts and groups the lab has as well."
    )
    provision: Words | None = Field(
        None,
        description="A command that makes the hosts where they are not there yet, and prints them: one a line, or "
        "as `ansible-inventory --list` does. It is run whenever the lab is read.",
    )
    reserve: Words | None = Field(
        None, description="A command that reserves a host, in whose words `{host}` and `{ssh}` are put: for `lab lock`."
    )
    release: Words | None = Field(None, description="The command that gives it back: for `lab unlock`.")


@dataclass(frozen=True)
class Lab:
    """A lab that was read: its machines, and the commands for each, which run in the file's ``folder``."""

    file: str
    machines: Machines
    reserve: tuple[str, ...] | None = None
    release: tuple[str, ...] | None = None

    @property
    def folder(self) -> Path:
        return Path(self.file).absolute().parent

    def chosen(self, words: list[str]) -> list[str]:
        """The hosts that words of the command line mean, by default all. Raises ``UserError``."""
        try:
            return self.machines.several(words or ["all"])
        except ValueError as error:
            raise UserError(f"{self.file}: {error}") from None


def read_lab(file: str) -> Lab:
    """The lab of a file, its commands run. Raises ``UserError``, for a mistake with file, line and key."""
    path = Path(file)
    if path.suffix != ".toml" and not is_json(path):
        return Lab(file, _checked(inventory_of(path), file))
    data = _read(path)
    if path.suffix != ".toml":
        return Lab(file, _checked(machines_of(data, file), file))
    text, raw = read_toml(data, file)
    found = _model(raw, text, file)
    merged: dict[str, Any] = {"hosts": {}, "groups": {}}
    if found.inventory is not None:
        _add(merged, _beside(path.absolute().parent, found.inventory))
    if found.provision is not None:
        output = printed(found.provision, path.absolute().parent, f"{file}: provision")
        _add(merged, machines_of(output, f"{file}: what provision printed"))
    _add(merged, raw)
    machines = _checked(merged, file)
    if not machines.hosts:
        raise UserError(f"{file}: the lab has no hosts: write [hosts.NAME], or inventory, or provision")
    return Lab(file, machines, found.reserve, found.release)


def _beside(folder: Path, name: str) -> dict[str, Any]:
    """What an inventory below the folder of a lab file has. Raises ``UserError``."""
    place = folder / name
    try:
        with opened_below(folder, name) as beside:
            # Ansible goes by the name of a file, and by what lies beside it.
            return machines_of(_read(beside, place), str(place)) if is_json(beside) else inventory_of(place)
    except OSError as error:
        raise UserError(f"cannot read the lab {place}: {error.strerror}") from None


def _add(merged: dict[str, Any], more: Mapping[str, Any]) -> None:
    """What is written last says what it says of a host, and leaves the rest as it was."""
    for name, host in more.get("hosts", {}).items():
        merged["hosts"][name] = {**merged["hosts"].get(name, {}), **host}
    merged["groups"] |= more.get("groups", {})


def _model(raw: Mapping[str, Any], text: str, file: str) -> LabFile:
    """The file as it is written; groups may be of hosts that come from elsewhere, and are looked at afterwards."""
    elsewhere = "inventory" in raw or "provision" in raw
    own = {key: value for key, value in raw.items() if key != "groups"} if elsewhere else raw
    try:
        return LabFile.model_validate(own)
    except ValidationError as error:
        lines, problems = positions(text), []
        for where, message in explain(error, LabFile):
            at = as_written(where, lines)
            problems.append(Problem(".".join(map(str, at)), printable(message), line_of(at, lines)))
        raise StudyError(file, sorted(problems, key=lambda problem: problem.line or 0)) from None


def _checked(tree: Mapping[str, Any], file: str) -> Machines:
    try:
        return Machines.model_validate(tree)
    except ValidationError as error:
        found = [Problem(".".join(map(str, where)), printable(message)) for where, message in explain(error, Machines)]
        raise StudyError(file, found) from None


def _read(path: Path, named: Path | None = None) -> bytes:
    try:
        return read_file(path, STUDY_TEXT, pipes=True)
    except OSError as error:
        raise UserError(f"cannot read the lab {named or path}: {error.strerror}") from None


__all__ = ["VARIABLE", "Host", "HostName", "Lab", "LabFile", "read_lab"]
