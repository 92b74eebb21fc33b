"""The lab: which machines there are, who uses them, and how they are had."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from storlab.base.errors import Problem, StudyError, UserError
from storlab.base.limits import STUDY_TEXT
from storlab.base.reach import Beside, OwnCommand
from storlab.base.reading import opened_below, read_file
from storlab.base.text import printable
from storlab.study.machines import ALL, Host, HostName, Machines
from storlab.study.messages import explain
from storlab.study.toml_text import as_written, line_of, positions, read_toml

# The user's own commands of a lab file: they make hosts, reserve them, and give them back.
#
# Words, which no shell reads; run in the lab file's folder. What they say on standard error is the user's to see at
# once, since making a machine takes minutes.


def printed(argv: Sequence[str], folder: Path, what: str) -> bytes:
    """What a command prints. Raises ``UserError`` where it can't be run, or ends with another status than 0.

    ``what``: the lab file and the key that names the command, for messages.
    """
    try:
        ended = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise UserError(f"{what}: {argv[0]} can't be run: {error.strerror}") from None
    if ended.returncode != 0:
        how = f"status {ended.returncode}" if ended.returncode > 0 else f"signal {-ended.returncode}"
        raise UserError(f"{what}: {argv[0]} ended with {how}; what it says is above")
    if len(ended.stdout) > STUDY_TEXT:
        raise UserError(f"{what}: {argv[0]} printed more than {STUDY_TEXT // 1024**2} MiB")
    return ended.stdout


def for_host(argv: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """The command for one host: ``{host}`` and ``{ssh}`` put into each word, nothing else."""
    found = []
    for word in argv:
        for name, value in words.items():
            word = word.replace(f"{{{name}}}", value)
        found.append(word)
    return found


# Ansible's inventories, as ``ansible-inventory --list`` prints them in JSON: hosts, groups, and their variables.
#
# Its format: docs.ansible.com/ansible/latest/dev_guide/developing_inventory.html. Of the variables, those count that
# say how ``ssh`` reaches a host, and Storlab's own (``storlab_disk`` and others). How else Ansible would connect,
# such as ``ansible_ssh_common_args``, is left to ``~/.ssh/config``: a machine is reached in one way.

_OWN = {f"storlab_{key}": key for key in ("address", "disk", "wipe", "scratch")}
_PREFIX = "storlab_"
_UNGROUPED = "ungrouped"
_PATIENCE = 120.0  # s; inventories of clouds ask over the network


def is_json(path: Path) -> bool:
    try:
        return path.is_file() and read_file(path)[:4096].lstrip()[:1] == b"{"
    except OSError:
        return False


def inventory_of(path: Path) -> dict[str, Any]:
    """What Ansible makes of an inventory of any form. Raises ``UserError``, without Ansible with the remedy."""
    if not path.exists():
        raise UserError(f"cannot read the lab {path}: No such file or directory")
    program = shutil.which("ansible-inventory")
    if program is None:
        raise UserError(
            f"{path} is neither TOML (lab.toml) nor JSON, so only Ansible can read it, and ansible-inventory is not "
            f"installed: apt-get install ansible-core, or, where it is, ansible-inventory -i {path} --list > lab.json"
        )
    argv = [program, "--inventory", str(path), "--list"]
    try:
        ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"{path}: ansible-inventory did not answer within {_PATIENCE:g} s") from None
    said = ended.stderr.decode(errors="replace").strip()
    if ended.returncode != 0:
        raise UserError(f"{path}: ansible-inventory: {said.splitlines()[-1] if said else 'it failed'}")
    found = machines_of(ended.stdout, str(path))
    if not found["hosts"]:  # with a file that it can't read, it warns, and ends well
        raise UserError(f"{path}: ansible-inventory finds no hosts{': ' + said.splitlines()[-1] if said else ''}")
    return found


def machines_of(data: bytes, file: str) -> dict[str, Any]:
    """Hosts and groups, as ``Machines`` has them, of what prints hosts: that JSON, or one host a line.

    Raises ``UserError`` with file, host and variable.
    """
    text = data.decode(errors="replace").strip()
    if not text.startswith("{"):
        words = [line.split("#")[0].strip() for line in text.splitlines()]
        hosts = {word.rpartition("@")[2]: {"ssh": word} if "@" in word else {} for word in words if word}
        return {"hosts": hosts, "groups": {}}
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        said = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
        raise UserError(f"{file}{where}: this is not JSON: {said}") from None
    if not isinstance(tree, dict) or ALL not in tree:
        raise UserError(f'{file}: there is no group "all": this is not what `ansible-inventory --list` prints')
    variables = _table(_table(tree.get("_meta", {}), file, "_meta").get("hostvars", {}), file, "_meta.hostvars")
    names = _inside(ALL, tree, file, ())
    hosts = {name: _host(name, _table(variables.get(name, {}), file, f"host {name}"), file) for name in names}
    groups = {
        group: inside
        for group in tree
        if group not in (ALL, "_meta", _UNGROUPED) and group not in hosts and (inside := _inside(group, tree, file, ()))
    }
    return {"hosts": hosts, "groups": groups}


def _table(value: Any, file: str, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{file}: {what} is no table: this is not what `ansible-inventory --list` prints")
    return value


def _inside(group: str, tree: Mapping[str, Any], file: str, above: tuple[str, ...]) -> list[str]:
    if group in above:
        raise UserError(f"{file}: group {group} is within itself")
    found = tree.get(group, {})
    if isinstance(found, list):  # the older form of dynamic inventories: a group is a list of hosts
        found = {"hosts": found}
    named = _table(found, file, f"group {group}")
    names = dict.fromkeys(map(str, _list(named.get("hosts", []), file, f"group {group}: hosts")))
    for child in _list(named.get("children", []), file, f"group {group}: children"):
        names |= dict.fromkeys(_inside(str(child), tree, file, (*above, group)))
    return list(names)


def _list(value: Any, file: str, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{file}: {what} is no list: this is not what `ansible-inventory --list` prints")
    return value


def _host(name: str, variables: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The keys of one host. Raises ``UserError`` for variables of Storlab's that there are not, other ways there."""
    for key in variables:
        if key.startswith(_PREFIX) and key not in _OWN:
            raise UserError(f"{file}: host {name}: there is no variable {key}: there are {', '.join(_OWN)}")
    connection = variables.get("ansible_connection", "ssh")
    if connection not in ("ssh", "smart", "paramiko", "paramiko_ssh"):
        raise UserError(
            f"{file}: host {name}: ansible_connection is {connection!r}, and Storlab reaches hosts by ssh: leave the "
            "host out of the inventory, or let ssh reach it"
        )
    found = {key: value for variable, key in _OWN.items() if (value := variables.get(variable)) is not None}
    user = variables.get("ansible_user", variables.get("ansible_ssh_user"))
    address = variables.get("ansible_host", variables.get("ansible_ssh_host"))
    port = variables.get("ansible_port", variables.get("ansible_ssh_port"))
    if user is None and address is None and port is None:
        return found
    host = str(address if address is not None else name)
    login = f"{user}@" if user is not None else ""
    if port is not None and str(port) != "22":
        raise UserError(
            f"{file}: host {name}: ansible_port is {port}: write it into ~/.ssh/config (Host {host}, Port {port}), and "
            "leave it out here"
        )
    return {"ssh": f"{login}{host}", **found}


# A lab file: hosts, groups, and the user's own commands that make, reserve and release them.
#
# Three forms: this one, in TOML; the JSON that ``ansible-inventory --list`` prints; and whatever else Ansible reads
# as an inventory, where it is installed. Commands are only in the first, which is a file of the user's that the
# command line names: no study can bring one, and none is found by itself.

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
