"""Lab files: three forms that say the same, and what is wrong with one, by file, line and key, or host and variable."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from laboratory.samples import sample
from storlab.errors import UserError
from storlab.lab.file import read_lab
from storlab.study.machines import Machines, machines_text

_TOML = """
[hosts.lab1]
ssh = "root@10.0.0.1"
disk = "/dev/nvme2n1"
wipe = "/dev/nvme2n1"
[hosts.lab2]
[groups]
baseline = ["lab1"]
dev = ["lab2", "lab1"]
"""
_LAB1 = {"ansible_host": "10.0.0.1", "ansible_user": "root", "storlab_disk": "/dev/nvme2n1",
         "storlab_wipe": "/dev/nvme2n1", "ansible_python_interpreter": "/usr/bin/python3"}  # fmt: skip
_INVENTORY: dict[str, Any] = {
    "_meta": {"hostvars": {"lab1": _LAB1}},
    "all": {"children": ["ungrouped", "baseline", "dev"]},
    "ungrouped": {},
    "baseline": {"hosts": ["lab1"]},
    "dev": {"hosts": ["lab2"], "children": ["baseline"]},
}


def _written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def _program(folder: Path, script: str) -> None:
    path = folder / "make-hosts"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_toml_and_the_output_of_ansible_say_the_same(tmp_path: Path) -> None:
    one = read_lab(_written(tmp_path, "lab.toml", _TOML)).machines
    other = read_lab(_written(tmp_path, "hosts.json", json.dumps(_INVENTORY))).machines
    assert one == other == Machines.model_validate_json(machines_text(one))
    assert one.members() == {"all": ["lab1", "lab2"], "baseline": ["lab1"], "dev": ["lab2", "lab1"]}
    assert one.destinations("@dev") == ["lab2", "root@10.0.0.1"] and one.destinations("@lab2") == ["lab2"]
    assert one.disk_of("root@10.0.0.1") == ("/dev/nvme2n1", "/dev/nvme2n1")


def test_what_provision_prints_is_joined_by_what_the_file_says_of_these_hosts(tmp_path: Path) -> None:
    _program(tmp_path, "echo making them >&2; echo lab1; echo admin@lab2 '# by hand'")
    text = 'provision = ["./make-hosts"]\n[hosts.lab1]\ndisk = "/dev/vdb"\n[groups]\ndev = ["lab1", "lab2"]\n'
    found = read_lab(_written(tmp_path, "lab.toml", text)).machines
    assert found.destinations("dev") == ["lab1", "admin@lab2"] and found.disk_of("lab1") == ("/dev/vdb", None)


def test_a_lab_adds_disks_to_an_inventory_beside_it(tmp_path: Path) -> None:
    inventory = {**_INVENTORY, "_meta": {"hostvars": {}}}
    _written(tmp_path, "hosts.json", json.dumps(inventory))
    text = 'inventory = "hosts.json"\n[hosts.lab2]\ndisk = "/dev/disk/by-id/virtio-kdevops1"\n'
    found = read_lab(_written(tmp_path, "lab.toml", text)).machines
    assert found.disk_of("lab2")[0] == "/dev/disk/by-id/virtio-kdevops1" and found.groups["baseline"] == ["lab1"]


@pytest.mark.parametrize(("text", "said"), json.loads(sample(__file__, "cases/mistakes.json")))
def test_a_mistake_is_said_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = _written(tmp_path, "lab.toml", text)
    with pytest.raises(UserError) as refused:
        read_lab(file)
    assert said in str(refused.value) and ("lab.toml" in str(refused.value) or "none.json" in said)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ansible_port": 2222}, "host lab1: ansible_port is 2222: write it into ~/.ssh/config"),
        ({"ansible_connection": "local"}, "host lab1: ansible_connection is 'local'"),
        ({"storlab_dsik": "/dev/vdb"}, "host lab1: there is no variable storlab_dsik"),
        ({"storlab_disk": "vdb"}, "hosts.lab1.disk"),
        ({"ansible_host": "{{ made_later }}"}, "is no SSH destination"),
    ],
)
def test_a_variable_that_cannot_be_is_said_with_its_host(tmp_path: Path, variables: dict[str, Any], said: str) -> None:
    inventory = {**_INVENTORY, "_meta": {"hostvars": {"lab1": variables}}}
    with pytest.raises(UserError) as refused:
        read_lab(_written(tmp_path, "hosts.json", json.dumps(inventory)))
    assert said in str(refused.value) and "hosts.json" in str(refused.value)


def test_another_form_than_json_is_for_ansible_which_may_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"apt-get install ansible-core, or, where it is, ansible-inventory -i"):
        read_lab(_written(tmp_path, "hosts.ini", "[dev]\nlab1\n"))
