"""One run at a time has a machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, wait_for
from laboratory.studies import directory
from storlab.errors import UserError
from storlab.run.machine import machine_for

SLOW = directory("command = { argv = ['sleep', '1'] }")


def quiet(message: str) -> None:
    raise AssertionError(message)


def test_a_second_run_is_refused_with_who_has_the_machine(lab: Laboratory) -> None:
    first = lab.start_run(SLOW, "--rounds", "3")
    wait_for(first, lambda: lab.sleeps())
    words = ("run", lab.study(SLOW), "--out", lab.folder / "second")
    refused = lab.storlab(*words)
    assert refused.status == 2, refused
    said = (
        rf"another run is using this machine: {re.escape(str(lab.out))}, of \w+ since 20\d\d-.* \(process {first.pid}\)"
    )
    assert re.search(said, refused.stderr), refused
    assert not (lab.folder / "second").exists()
    waited = lab.storlab(*words, "--wait")
    assert waited.status == 0 and "Waiting for another run on this machine" in waited.stderr, waited
    assert ended(first).status == 0


def test_runs_that_share_a_machine_keep_out_those_that_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORLAB_LOCKS", str(tmp_path))
    refused = pytest.raises(UserError, match=r"another run is using this machine: b, of")
    with machine_for("a", quiet, shared=True), machine_for("b", quiet, shared=True), refused, machine_for("c", quiet):
        pass
    with machine_for("c", quiet), pytest.raises(UserError, match=r": c, of"), machine_for("a", quiet, shared=True):
        pass


def test_a_run_that_is_killed_has_given_its_machine_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORLAB_LOCKS", str(tmp_path))
    program = (
        "import time; from storlab.run.machine import machine_for\n"
        "with machine_for('gone', print): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"gone, of .* \(process {holder.pid}\)"), machine_for("next", quiet):
            pass
        kill(holder, signal.SIGKILL)
    with machine_for("next", quiet):
        pass


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b'{"user": 1}', b"x" * 10_000])
def test_what_stands_in_the_lock_need_not_make_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("STORLAB_LOCKS", str(tmp_path))
    with machine_for("a", quiet):
        (tmp_path / "machine").write_bytes(content)
        with pytest.raises(UserError, match="of another user, who could not write down what it is"):
            machine_for("b", quiet).__enter__()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORLAB_LOCKS", str(tmp_path))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "machine").symlink_to(precious)
    with pytest.raises(UserError, match="cannot lock this machine by"):
        machine_for("a", quiet).__enter__()
    assert precious.read_text() == "mine"


@pytest.mark.needs("root", "setpriv")
def test_another_user_locks_the_file_of_root(tmp_path: Path) -> None:
    """Reading it is enough. With a /run of its own, where it may do that."""
    program = (
        "import os, sys; from storlab.run.machine import machine_for\n"
        "with machine_for('mine', print):\n"
        "    os.path.exists('/run/storlab/machine') or sys.exit(3)\n"
        "    os.fork() or os.execvp('setpriv', ['setpriv', '--reuid', '65534', '--clear-groups', 'flock', '--nonblock',"
        " '--conflict-exit-code', '75', '/run/storlab/machine', 'true'])\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "STORLAB_LOCKS"}
    inside = f'mount -t tmpfs -o mode=755 run /run && exec {sys.executable} -c "$1"'
    argv = ["unshare", "--mount", "sh", "-c", inside, "sh", program]
    assert subprocess.run(argv, env=environment, check=False).returncode == 75
