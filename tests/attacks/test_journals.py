"""Somebody else's run folder: `storlab clean` and `resume` undo what this run made, whatever its journal says."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from laboratory import Laboratory, ended, kill, wait_for, wait_until
from laboratory.devices import PLAIN, Device, sh
from laboratory.studies import directory
from storlab.base.errors import RecordsError
from storlab.run.recovery.journal import read_pending

STUDY = directory('command = { argv = ["true"] }')
pytestmark = pytest.mark.needs("root")


@pytest.fixture
def finished(lab: Laboratory) -> Laboratory:
    """A run that ended properly, whose journal an attacker then writes."""
    lab.execute(STUDY)
    return lab


def craft(lab: Laboratory, *entries: tuple[str, dict[str, Any]], **on: str) -> None:
    """Let the journal say that these are set up; ``on``: on another node than this machine."""
    node = next(line["node"] for line in lab.journal() if "registered" in line) | on
    lines = [
        {"time": "", "registered": number, "node": node, "undo": undo, "arguments": arguments, "outlives_boot": True}
        for number, (undo, arguments) in enumerate(entries, start=1)
    ]
    (lab.out / "journal.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def cgroups() -> Path:
    """The root of version 2."""
    return next(
        path for path in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")) if (path / "cgroup.procs").exists()
    )


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody's in a cgroup of this name."""
    folder = cgroups() / name
    folder.mkdir()
    with subprocess.Popen(["sleep", "3600"], env=PLAIN) as process:
        try:
            (folder / "cgroup.procs").write_text(str(process.pid))
            yield process
        finally:
            process.kill()
            process.wait()
            assert wait_until(lambda: "populated 0" in (folder / "cgroup.events").read_text(), 10.0)
            folder.rmdir()


@pytest.mark.parametrize("name", ["somebodys-{pid}", "storlab-20260101-000000-abcd.1.1.1-host", "run-1-1-{server}"])
def test_a_journal_does_not_end_a_cgroup_or_a_server_of_somebody_else(finished: Laboratory, name: str) -> None:
    server = f"storlab-{finished.identity}-0123456789ab"
    name = name.format(pid=os.getpid(), server=server)
    with cgroup(name) as victim:
        if server in name:  # the name is right, but no agent of Storlab's made it
            end = {"program": "x", "signal": "SIGTERM", "patience": 1.0}
            craft(finished, ("server.stop", {"name": server, "folders": [], **end}))
        else:
            craft(finished, ("processes.end", {"run": finished.identity, "node": "host", "cgroup": name}))
        result = finished.storlab("clean", finished.out)
        assert victim.poll() is None
        assert server in name or (result.status == 1 and "left alone" in result.stdout), str(result)


def test_a_journal_does_not_wipe_a_file_system_that_no_run_made(finished: Laboratory, device: Device) -> None:
    sh("mkfs.ext4", "-q", device.path)
    identity = sh("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device.path).strip()
    before = device.checksum()
    run = finished.identity
    craft(
        finished,
        ("mkfs.forget", {"device": device.path, "uuid": identity}),
        ("mkfs.forget", {"device": device.path, "uuid": identity, "run": run, "nonce": "0" * 32}),
        ("mkfs.forget", {"device": device.path, "run": run, "nonce": "0" * 32}),
        ("zpool.forget", {"device": device.path, "pool": f"storlab-{run}-x"}),
    )
    finished.storlab("clean", finished.out)
    assert device.checksum() == before


def test_a_journal_does_not_remove_what_another_run_has(finished: Laboratory) -> None:
    other = finished.scratch / "storlab-20260101-000000-abcd"
    (other / "data").mkdir(parents=True)
    (other / "data" / "file").write_text("mine")
    craft(
        finished,
        ("scratch.remove", {"path": str(other)}),
        ("sockets.remove", {"path": str(other)}),
        ("directory.remove", {"path": str(other)}),
        ("file.remove", {"path": f"{other}/data/file"}),
        ("mount.unmount", {"path": f"{other}/data"}),
    )
    result = finished.storlab("clean", finished.out)
    assert (other / "data" / "file").read_text() == "mine"
    assert result.stdout.count("left alone") == 5, str(result)
    assert "Traceback" not in result.stderr


def test_a_link_in_a_folder_of_the_runs_name_leads_nowhere(finished: Laboratory) -> None:
    precious = finished.folder / "precious"
    (precious / "below").mkdir(parents=True)
    (precious / "file").write_text("mine")
    (precious / "below" / "file").write_text("mine")
    own = finished.scratch / f"storlab-{finished.identity}"
    own.symlink_to(precious)
    second = finished.folder / f"storlab-{finished.identity}"
    second.mkdir()
    (second / "link").symlink_to(precious)
    craft(
        finished,
        ("scratch.remove", {"path": str(own)}),
        ("file.remove", {"path": f"{own}/file"}),
        ("file.remove", {"path": f"{second}/link/file"}),
        ("server.stop", {"name": f"storlab-{finished.identity}-0123456789ab", "program": "x", "signal": "SIGTERM",
                         "patience": 1.0, "folders": [f"{second}/link/below"]}),
    )  # fmt: skip
    finished.storlab("clean", finished.out)
    assert (precious / "file").read_text() == "mine"
    assert (precious / "below" / "file").read_text() == "mine"


def test_a_folder_of_the_runs_name_that_another_user_made_is_left_alone(finished: Laboratory) -> None:
    own = finished.scratch / f"storlab-{finished.identity}"
    own.mkdir()
    (own / "file").write_text("theirs")
    os.chown(own, 65534, 65534)
    craft(finished, ("scratch.remove", {"path": str(own)}), ("file.remove", {"path": f"{own}/file"}))
    result = finished.storlab("clean", finished.out)
    assert (own / "file").read_text() == "theirs"
    assert "belongs to another user" in result.stdout
    shutil.rmtree(own)


def test_a_journal_leads_to_no_machine_that_the_command_line_does_not_name(finished: Laboratory) -> None:
    path = f"/var/tmp/storlab-{finished.identity}"
    craft(finished, ("path.remove", {"path": path}), name="far", kind="ssh", address="me@nowhere.invalid sudo")
    for command in ("clean", "resume"):
        for option in ((), ("--allow", "host=me@nowhere.invalid.example")):
            result = finished.storlab(command, finished.out, *option)
            assert result.status == 2 and "--allow host=me@nowhere.invalid\n" in result.stderr, str(result)
    allowed = finished.storlab("clean", finished.out, "--allow", "host=me@nowhere.invalid")
    assert allowed.status == 1 and "far" in allowed.stdout and "--allow" not in allowed.stderr, str(allowed)
    craft(finished)
    assert finished.storlab("clean", finished.out).status == 0


def test_a_run_that_belongs_to_another_user_is_neither_cleaned_nor_resumed_by_root(finished: Laboratory) -> None:
    craft(finished)
    changes: list[tuple[Path, Callable[[Path], None]]] = [
        (finished.out / "journal.jsonl", lambda path: os.chown(path, 65534, -1)),
        (finished.out, lambda path: os.chown(path, 65534, -1)),
        (finished.out / "manifest.json", lambda path: path.chmod(0o666)),
        (finished.out / "journal.jsonl", lambda path: path.chmod(0o620)),
        (finished.out, lambda path: path.chmod(0o777)),
    ]
    for path, change in changes:
        before = path.stat()
        change(path)
        for command in ("clean", "resume"):
            result = finished.storlab(command, finished.out)
            assert result.status == 2 and str(path) in result.stderr, str(result)
            assert "belongs to another user" in result.stderr or "others can write to it" in result.stderr
        os.chown(path, 0, -1)
        path.chmod(before.st_mode & 0o7777)
    assert finished.storlab("clean", finished.out).status == 0


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_journal_that_is_a_link_or_no_file_is_refused(finished: Laboratory, kind: str) -> None:
    journal = finished.out / "journal.jsonl"
    kept = finished.folder / "kept"
    journal.rename(kept)
    if kind == "link":
        journal.symlink_to(kept)
    elif kind == "fifo":
        os.mkfifo(journal)
    else:
        journal.mkdir()
    for command in ("clean", "resume"):
        result = finished.storlab(command, finished.out, timeout=60)
        assert result.status == 2 and str(journal) in result.stderr, str(result)


def test_a_copy_of_the_folder_of_a_living_run_does_not_end_it(lab: Laboratory) -> None:
    process = lab.start_run(STUDY.replace('["true"]', '["sleep", "3600"]'), "--quiet")
    try:
        wait_for(process, lab.sleeps)
        shutil.copytree(lab.out, lab.folder / "copy")
        result = lab.storlab("clean", lab.folder / "copy")
        assert result.status == 2 and "is still running" in result.stderr, str(result)
        assert not wait_until(lambda: not lab.sleeps(), 0.2)
    finally:
        kill(process)
        ended(process)
    assert lab.storlab("clean", lab.out).status == 0
    assert lab.leftovers() == []


def test_a_journal_that_is_nested_without_end_is_damaged(finished: Laboratory) -> None:
    journal = finished.out / "journal.jsonl"
    journal.write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(RecordsError, match=f"{journal}:1 is damaged"):
        read_pending(journal)
