"""What is dead is undone on its own machine and boot, and nothing else; what can't be ended is left behind by name."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from laboratory import Laboratory, ended, kill, wait_until
from laboratory.devices import sh
from laboratory.studies import ON_LOOP
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.records.run_folder import RunFolder
from storlab.run.recovery import temporary
from storlab.run.recovery.journal import Journal
from storlab.run.recovery.temporary import remembered, remove_dead, temporary_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


MARK = "0123456789abcdef"


def left(folder: Path) -> Path:
    """A folder as a process leaves it that was killed."""
    folder.mkdir()
    with RunFolder(folder).lock(MARK):
        (folder / "trials").mkdir()
        (folder / "trials" / "0001").write_text("something")
        (folder / "link").symlink_to("/")
    return folder


def test_what_is_locked_is_alive_and_what_is_not_is_removed(tmp_path: Path) -> None:
    folder = left(tmp_path / f"x-{MARK}")
    with RunFolder(folder).lock(MARK):
        assert remove_dead(folder, MARK) == "alive"
        assert (folder / "trials" / "0001").read_text() == "something"
    assert remove_dead(folder, MARK) == "removed" and not folder.exists()
    with pytest.raises(FileNotFoundError):
        remove_dead(folder, MARK)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    folder = left(tmp_path / f"x-{MARK}")
    link = tmp_path / f"link-{MARK}"
    link.symlink_to(folder)
    without, unmarked, locked_elsewhere = (tmp_path / f"{name}-{MARK}" for name in ("unlocked", "unmarked", "linked"))
    for each in (without, unmarked, locked_elsewhere):
        each.mkdir()
    for each in (without, unmarked):
        (each / "mine").touch()
    file = tmp_path / f"file-{MARK}"
    file.touch()
    unnamed = left(tmp_path / "x")
    (unmarked / "lock").write_text("1234\n")
    (locked_elsewhere / "lock").symlink_to(folder / "lock")
    for path in (link, without, file, unnamed, unmarked):
        assert remove_dead(path, MARK) == "foreign" and path.exists()
    with pytest.raises(OSError, match="symbolic links"):
        remove_dead(locked_elsewhere, MARK)
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        assert remove_dead(folder, MARK) == "foreign"


def test_what_is_empty_may_just_have_been_made(tmp_path: Path) -> None:
    folder = tmp_path / f"x-{MARK}"
    folder.mkdir()
    assert remove_dead(folder, MARK) == "alive"
    os.utime(folder, (0, 0))
    assert remove_dead(folder, MARK) == "removed"


def test_what_may_still_stand_keeps_its_journal(tmp_path: Path) -> None:
    folder = left(tmp_path / f"x-{MARK}")
    (folder / "first").mkdir()
    with Journal(folder / "first" / "journal.jsonl") as journal:
        host = NodeIdentity("host", "local", "", Machine("m", "b"))
        journal.register(host, "loop.detach", {"file": "/x"})
    assert remove_dead(folder, MARK) == "standing"
    (folder / "first" / "journal.jsonl").write_text("rubbish\nmore\n")
    assert remove_dead(folder, MARK) == "standing"
    (folder / "first" / "journal.jsonl").write_text("")
    assert remove_dead(folder, MARK) == "removed"


def test_a_folder_is_remembered_until_it_is_gone() -> None:
    with temporary_folder("storlab-test-") as folder:
        (link,) = temporary.links()
        assert link.readlink() == folder and remove_dead(folder, link.name) == "alive"
    assert temporary.links() == [link] and remove_dead(folder, link.name) == "removed"
    temporary.forget(link)
    with temporary_folder("storlab-test-") as folder:
        (folder / "lock").unlink()
        folder.rmdir()
    assert temporary.links() == []


def test_without_a_writable_home_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with remembered(tmp_path, MARK):
        assert temporary.links() == []


STACK = f'primary = "elapsed"\nstack = [{ON_LOOP}]\n'
STUDY = f'{STACK}[probes]\n[workload.load]\ncommand = {{ argv = ["sleep", "3600"] }}\n'


def killed_while_measuring(lab: Laboratory) -> None:
    process = lab.start_run(STUDY)
    assert wait_until(lambda: process.poll() is not None or lab.sleeps(), 60)
    kill(process)
    assert ended(process).status == -9 and wait_until(lambda: not lab.processes(), 10.0)


def rewrite(lab: Laboratory, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the node of every entry of the journal."""
    lines = lab.journal()
    for line in lines:
        if "registered" in line:
            change(line["node"])
    (lab.out / "journal.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def other_machine(node: dict[str, Any]) -> None:
    node["machine"] = {"id": uuid.UUID(int=1).hex, "boot": str(uuid.UUID(int=2))}


def other_boot(node: dict[str, Any]) -> None:
    node["machine"] = {**node["machine"], "boot": str(uuid.UUID(int=2))}


@pytest.mark.needs("root")
def test_what_another_machine_has_or_a_kind_unknown_here_stays_pending_and_is_reported(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    before = (lab.out / "journal.jsonl").read_bytes()
    stands = set(lab._leftovers())
    rewrite(lab, other_machine)
    mark = {"STORLAB_RUN": lab.identity, "STORLAB_NODE": "host"}
    marked = subprocess.Popen(["sleep", "3600"], env={**os.environ, **mark})
    try:
        cleaned = lab.storlab("clean", lab.out).with_status(1)
        reported = cleaned.stdout.splitlines()
        journal = lab.journal()
        assert len(reported) == sum("registered" in each for each in journal) - sum(
            "undone" in each for each in journal
        )
        assert all("node host was on another machine than this is now" in line for line in reported)
        assert f"its machine id was {uuid.UUID(int=1).hex}" in reported[0]
        assert marked.poll() is None, "processes are ended on their own machine alone"
        assert set(lab._leftovers()) == stands | {f"process {marked.pid}"}
        resumed = lab.storlab("resume", lab.out)
        assert resumed.status != 0 and "another machine" in resumed.stderr
        (lab.out / "journal.jsonl").write_bytes(before)
        rewrite(lab, lambda node: node.update(kind="fleet", name="f1"))
        cleaned = lab.storlab("clean", lab.out).with_status(1)
        assert "node f1: nothing that is installed here knows its kind, fleet" in cleaned.stdout
        (lab.out / "journal.jsonl").write_bytes(before)
        assert lab.storlab("clean", lab.out).status == 0 and marked.wait(10) == -9
    finally:
        marked.kill()
        marked.wait()


@pytest.mark.needs("root")
def test_after_a_boot_only_what_outlives_one_is_undone(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    (mount,) = (each.removeprefix("mount ") for each in lab._leftovers() if each.startswith("mount "))
    device = sh("findmnt", "-no", "SOURCE", mount).strip()
    sh("umount", mount)
    rewrite(lab, other_boot)
    try:  # somebody's loop device now, as far as the journal can tell
        cleaned = lab.storlab("clean", lab.out).with_status(0)
        assert "loop.detach" not in cleaned.stdout and device in sh("losetup", device)
    finally:
        sh("losetup", "--detach", device)


FREEZES = f"""{STACK}
repeat = {{ until = "max", min = 1, max = 1 }}
trial = {{ timeout = "10s" }}
[workload.load]
command = {{ argv = ["sh", "-c", "fsfreeze --freeze $0; exec touch $0/x", "{{target}}"] }}
"""


@pytest.mark.needs("root")
def test_what_hangs_in_the_kernel_is_left_until_clean_ends_it(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storlab.nodes.process._REST", 1.0)
    monkeypatch.setattr("storlab.nodes.processes._PATIENCE", 1.0)
    monkeypatch.setattr("storlab.nodes.undo._BUSY_WAIT", 0.02)
    try:
        outcome = lab.execute(FREEZES, unconfined=True)
        (record,) = lab.records()
        assert record.status == "failed"
        left = "\n".join(outcome.left_behind)
        assert re.search("mount.unmount.* target is busy", left), left
        assert "can't be killed: they hang in the kernel" in left, left
        assert lab.links == [outcome.folder.manifest.run], "`clean` knows of it"
    finally:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(lab.scratch) in line:
                sh("fsfreeze", "--unfreeze", line.split()[4])
    lab.storlab("clean", "--yes").with_status(0)
