"""What a QEMU may do: looked up at the real process of a guest."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, EXT4, guests, needs_guests, once_begun, qemus
from storlab.nodes.kinds.vm.confinement import Confinement, unused_user


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with contextlib.closing(Laboratory(tmp_path)) as made:
        yield made


def status_of(pid: int) -> dict[str, str]:
    """The lines of a process's status, see proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def watched(lab: Laboratory, *names: str, **keys: str | None) -> dict[str, dict[str, str]]:
    """The status of each guest's QEMU while its load runs; ``keys`` as for ``guests``."""
    found = dict[str, dict[str, str]]()

    def look() -> None:
        found.update({name: status_of(pid) for name, pid in qemus(lab).items()})

    study = guests(f'echo "{BEGUN}" > /dev/console; sleep 3', rounds=1, trial="", rest="", **keys)
    with once_begun(lab, names, look):
        lab.execute(study)
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    assert lab.leftovers() == []
    return found


def facts_of(lab: Laboratory, guest: str) -> dict[str, object]:
    """What the records say of how its QEMU is confined."""
    (record,) = lab.records()
    facts: dict[str, object] = record.guests[guest]["confinement"]
    return facts


@needs_guests
@pytest.mark.parametrize("start", ["restored", "cold"])
def test_each_guest_is_run_by_a_user_of_its_own_without_any_privilege(lab: Laboratory, start: str) -> None:
    found = watched(lab, "vm-1", "vm-2", start=json.dumps(start), stack=EXT4)
    users = {name: {int(number) for number in status["Uid"].split()} for name, status in found.items()}
    assert len(users) == 2
    for name, status in found.items():
        assert len(users[name]) == 1
        assert min(users[name]) >= 0x70000000
        assert set(status["Gid"].split()) == set(status["Uid"].split())
        assert status["Groups"] in ("", status["Gid"].split()[0])
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert facts_of(lab, name) == {"user": "its own", "sandbox": True}
    assert found["vm-1"]["Uid"] != found["vm-2"]["Uid"]


@needs_guests
def test_a_qemu_that_serves_files_keeps_its_user_and_says_so(lab: Laboratory) -> None:
    found = watched(lab, "vm", count="1", stack='[{ layer = "directory" }, { layer = "9p" }]', from_='"host"')
    assert set(found["vm"]["Uid"].split()) == {str(os.geteuid())}
    assert found["vm"]["Seccomp"] == "2"
    assert "9p" in str(facts_of(lab, "vm")["reason"])


def test_users_of_guests_are_nobody_and_seldom_the_same() -> None:
    users = {unused_user() for _ in range(1000)}
    assert len(users) > 990
    assert all(0x70000000 <= user < 0x80000000 for user in users)


def test_what_qemu_can_not_do_is_left_out_of_its_command_line() -> None:
    assert Confinement().words() == []
    assert Confinement(5, option="-runas").words() == ["-runas", "5:5"]
    assert "elevateprivileges=deny" in Confinement(sandbox=True).words()[1]
