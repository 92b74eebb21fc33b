"""A lab's hosts: checked, reserved, and used by a study that names none; and its files, in three forms."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from laboratory.hosts import Hosts
from laboratory.samples import sample
from storlab.base.errors import UserError
from storlab.lab import read_lab
from storlab.study.machines import Machines, machines_text

from .conftest import storlab

_STUDY = sample(__file__, "cases/machines.toml")


def _lab(folder: Path, disks: list[str], rest: str = "") -> None:
    """A lab of the recipe's hosts, made by a command of its own."""
    text = f"""provision = ["echo", "lab1\\nlab2"]
[hosts.lab1]
disk = "{disks[0]}"
[hosts.lab2]
disk = "{disks[1]}"
{rest}
[groups]
baseline = ["lab1"]
dev = ["lab2"]
"""
    (folder / "lab.toml").write_text(text)


def _clear(disks: list[str]) -> None:
    for disk in disks:
        subprocess.run(["wipefs", "--all", "--quiet", disk], check=True)


def test_hosts_are_checked_side_by_side_with_their_disks(two: Hosts, disks: list[str], tmp_path: Path) -> None:
    _clear(disks)
    _lab(tmp_path, disks, "[hosts.nowhere]")
    subprocess.run(["mkfs.ext4", "-q", disks[1]], check=True)
    found = storlab(two, tmp_path, "lab", "check", "--json")
    assert found.returncode == 3
    of = {
        each["host"]: {check["name"]: check for check in each["checks"]} for each in json.loads(found.stdout)["hosts"]
    }
    assert of["lab1"]["disk"]["status"] == "ok" and disks[0] in of["lab1"]["disk"]["says"]
    assert of["lab2"]["disk"]["status"] == "missing" and "a signature of ext4" in of["lab2"]["disk"]["says"]
    assert "Could not resolve hostname" in of["nowhere"]["reachable"]["says"] and len(of["nowhere"]) == 1
    for host in ("lab1", "lab2"):
        assert {of[host][name]["status"] for name in ("loop devices", "ext4", "agent", "io_uring")} == {"ok"}
        assert two[host].processes() == [] and list(two[host].scratch.iterdir()) == []


def test_a_study_that_names_no_host_runs_on_each_ones_own_disk_and_judges_no_machine(
    two: Hosts, disks: list[str], tmp_path: Path
) -> None:
    _clear(disks)
    _lab(tmp_path, disks)
    study = tmp_path / "study.toml"
    study.write_text(_STUDY)
    run = tmp_path / "run"
    ran = storlab(two, tmp_path, "run", str(study), "--rounds", "1", "--quiet", "--out", str(run))
    assert ran.returncode == 0, ran.stderr
    assert "baseline ran on lab1 and dev on lab2" in ran.stdout
    facts = (run / "trials" / "0001" / "trial.json").read_text() + (run / "trials" / "0002" / "trial.json").read_text()
    assert all(disk in facts for disk in disks)
    (tmp_path / "lab.toml").unlink()  # what it held is kept with the run
    assert storlab(two, tmp_path, "report", str(run)).returncode == 0
    for host in ("lab1", "lab2"):
        assert two[host].processes() == [] and list(two[host].scratch.iterdir()) == []
        assert two[host].mounts() == []


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (_STUDY.replace("@dev", "@prod"), 'line 5: factors.machine.dev: unknown group "prod"'),
        (_STUDY.replace('path = "@lab"', 'path = "@lab", wipe = "@lab"'), "is said by the lab: write wipe beside"),
    ],
    ids=["an unknown group", "a study that would wipe"],
)
def test_what_a_study_can_not_ask_of_the_lab(
    two: Hosts, disks: list[str], tmp_path: Path, study: str, said: str
) -> None:
    _lab(tmp_path, disks)
    (tmp_path / "study.toml").write_text(study)
    refused = storlab(two, tmp_path, "plan", str(tmp_path / "study.toml"))
    assert refused.returncode == 2 and said in refused.stderr


def test_a_disk_that_is_in_use_and_a_host_of_somebody_elses_are_refused_with_which(
    two: Hosts, disks: list[str], tmp_path: Path
) -> None:
    _clear(disks)
    _lab(tmp_path, disks)
    (tmp_path / "study.toml").write_text(_STUDY)
    subprocess.run(["mkfs.ext4", "-q", disks[1]], check=True)
    two["lab2"].run("mount", disks[1], "/mnt")
    try:
        refused = storlab(two, tmp_path, "plan", str(tmp_path / "study.toml"))
    finally:
        two["lab2"].run("umount", "/mnt")
    assert refused.returncode == 2 and f"{disks[1]} is mounted on /mnt" in refused.stderr and "lab" in refused.stderr
    _clear(disks)
    storlab(two, tmp_path, "lab", "lock", "dev", LOGNAME="somebody-else")
    refused = storlab(two, tmp_path, "plan", str(tmp_path / "study.toml"))
    assert refused.returncode == 2 and "lab2 is reserved by somebody-else@" in refused.stderr
    storlab(two, tmp_path, "lab", "unlock", "dev", "--force")


def test_a_host_is_reserved_once_and_given_back(two: Hosts, tmp_path: Path) -> None:
    by_command = 'reserve = ["sh", "-c", "echo + $0 >> log", "{host}"]\n'
    by_command += 'release = ["sh", "-c", "echo - $0 >> log", "{ssh}"]\n'
    (tmp_path / "lab.toml").write_text(f"{by_command}[hosts.lab1]\n[hosts.lab2]\n")
    assert storlab(two, tmp_path, "lab", "lock", "lab1", "--why", "kernels").stdout == "lab1: reserved for you\n"
    assert storlab(two, tmp_path, "lab", "lock", "lab1").returncode == 0  # it is ours already

    other = storlab(two, tmp_path, "lab", "lock", "lab2", "lab1", LOGNAME="somebody-else")
    assert other.returncode == 2
    assert "lab1 is reserved by" in other.stderr and "kernels" in other.stderr
    assert "lab2: given back" in other.stderr  # all of them, or none
    assert storlab(two, tmp_path, "lab", "unlock", "lab1", LOGNAME="somebody-else").returncode == 2

    assert "given back, was reserved by" in storlab(two, tmp_path, "lab", "unlock", "all").stdout
    assert two.ssh("lab1", "ls", "/var/lib/storlab") == ""
    said = (tmp_path / "log").read_text().split("\n")
    assert said.count("+ lab1") == said.count("- lab1") + 1  # it was reserved twice by us, and given back once


def test_what_can_not_be_reached_is_said_in_the_words_of_ssh(two: Hosts, tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text("[hosts.nowhere]\n")
    ended = storlab(two, tmp_path, "lab", "lock", "nowhere")
    assert ended.returncode == 2
    assert "cannot reach nowhere: ssh: Could not resolve hostname nowhere" in ended.stderr


_TOML = sample(__file__, "cases/lab.toml")
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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../hosts.json", "it leads out of that file's folder"),
        ("link", "a symbolic link is on the way"),
        ("/etc/hosts", "leads out"),
    ],
)
def test_an_inventory_lies_below_the_folder_of_its_lab(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "lab").mkdir()
    _written(tmp_path, "hosts.json", json.dumps(_INVENTORY))
    (tmp_path / "lab" / "link").symlink_to("../hosts.json")
    with pytest.raises(UserError, match=why):
        read_lab(_written(tmp_path / "lab", "lab.toml", f'inventory = "{name}"\n'))


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
