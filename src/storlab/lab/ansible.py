"""Ansible's inventories, as ``ansible-inventory --list`` prints them in JSON: hosts, groups, and their variables.

Its format: docs.ansible.com/ansible/latest/dev_guide/developing_inventory.html. Of the variables, those count that say
how ``ssh`` reaches a host, and Storlab's own (``storlab_disk`` and others). How else Ansible would connect, such as
``ansible_ssh_common_args``, is left to ``~/.ssh/config``: a machine is reached in one way.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storlab.errors import UserError
from storlab.reading import read_file
from storlab.study.machines import ALL

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
        return {"hosts": {word.rpartition("@")[2]: _line(word) for word in words if word}, "groups": {}}
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


def _line(word: str) -> dict[str, Any]:
    return {"ssh": word} if "@" in word else {}


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
