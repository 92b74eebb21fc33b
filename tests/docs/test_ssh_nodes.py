"""The node kind of examples/extensions, against a real SSH server: what is set up there is undone there, or pends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory, ended, kill, needs_root, processes_with, wait_until
from laboratory.ssh import Remote, needs_sshd, remote_machine

pytestmark = [needs_sshd, pytest.mark.slow]

STUDY = """
repeat = {{ until = "max", min = 2, max = 2 }}
[probes]
[nodes.far]
kind = "ssh"
destination = "far"
config = "{config}"
stack = [
    {{ layer = "file", size = "64M" }},
    {{ layer = "loop" }},
    {{ layer = "mkfs", type = "ext4" }},
    {{ layer = "mount" }},
]
[workload.load]
on = "far"
command = {{ argv = ["sh", "-c", '''{load}'''] }}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    """A laboratory of the test's own."""
    laboratory = Laboratory(tmp_path)
    yield laboratory
    laboratory.close()


@pytest.fixture
def far(lab: Laboratory, installed: tuple[Path, ...]) -> Iterator[Remote]:
    lab.environment["PYTHONPATH"] = os.pathsep.join(map(str, installed))
    with remote_machine(lab.folder / "far", lab.scratch) as remote:
        yield remote


def study(far: Remote, load: str) -> str:
    return STUDY.format(config=far.config, load=load)


def processes_there(lab: Laboratory) -> dict[int, str]:
    """Those of the run on the other machine, which has this one's process table: number and program."""
    found = {}
    for pid in processes_with(f"STORLAB_RUN={lab.identity}") if (lab.out / "manifest.json").exists() else ():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if b"STORLAB_NODE=far" in words:
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    return found


def measuring(lab: Laboratory, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the load runs; whether it does."""
    wait_until(lambda: process.poll() is not None or "sleep" in processes_there(lab).values(), 60)
    return process.poll() is None


def killed_while_measuring(lab: Laboratory, far: Remote, load: str = "exec sleep 3600") -> None:
    process = lab.start_run(study(far, load))
    assert measuring(lab, process), ended(process)
    kill(process)
    assert ended(process).status == -9
    assert wait_until(lambda: not processes_there(lab), 20.0), "the agent there ends with its connection"
    assert far.mounts(), "nobody was there to unmount it"


def pending(lab: Laboratory) -> set[str]:
    lines = lab.journal()
    undone = {line["undone"] for line in lines if "undone" in line}
    return {line["undo"] for line in lines if "registered" in line and line["registered"] not in undone}


def clean(lab: Laboratory) -> Ended:
    return lab.storlab("clean", lab.out)


@needs_root
def test_a_stack_is_set_up_on_the_other_machine_and_torn_down_there(lab: Laboratory, far: Remote) -> None:
    result = lab.run(study(far, "cat /etc/machine-id; df --output=fstype {target}"))
    assert result.status == 0, str(result)
    assert [record.status for record in lab.records()] == ["done", "done"]
    said = (lab.out / "trials" / "0001" / "far" / "load" / "stdout").read_text().split()
    assert said == [far.run("cat", "/etc/machine-id").strip(), "Type", "ext4"]
    assert {line["node"]["machine"]["id"] for line in lab.journal() if line.get("undo") == "loop.detach"} == {said[0]}
    assert (far.mounts(), far.files(), lab.leftovers()) == ([], [], [])


@needs_root
def test_what_a_killed_run_left_there_is_undone_there(lab: Laboratory, far: Remote) -> None:
    killed_while_measuring(lab, far)
    result = clean(lab)
    assert result.status == 0, str(result)
    assert "unmounted" in result.stdout
    assert (far.mounts(), far.files(), lab.leftovers()) == ([], [], [])


@needs_root
def test_a_process_that_outlived_its_agent_there_is_ended_there(lab: Laboratory, far: Remote) -> None:
    process = lab.start_run(study(far, "setsid sleep 3600 & wait"))
    assert measuring(lab, process), ended(process)
    agents = [pid for pid, program in processes_there(lab).items() if program.startswith("storlab")]
    assert agents
    process.send_signal(signal.SIGSTOP)  # or it would start another agent, which ends what this one left
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, or one would end what another started
        for pid in sorted(agents, reverse=True):  # the youngest first: a stopped child without a parent is woken
            os.kill(pid, number)
    kill(process)
    assert ended(process).status == -9
    assert "sleep" in processes_there(lab).values()
    result = clean(lab)
    assert result.status == 0, str(result)
    assert ("killed" in result.stdout, processes_there(lab)) == (True, {})
    assert (far.mounts(), far.files(), lab.leftovers()) == ([], [], [])


@needs_root
def test_what_can_not_be_reached_stays_pending_and_is_reported(lab: Laboratory, far: Remote) -> None:
    killed_while_measuring(lab, far)
    far.stop()
    result = clean(lab)
    assert result.status != 0
    assert "mount.unmount" in result.stdout
    assert "node far can't be reached" in result.stdout
    assert "Connection refused" in result.stdout
    assert pending(lab) == {"processes.end", "scratch.remove", "file.remove", "loop.detach", "mount.unmount"}
    assert far.mounts()
    far.start()
    assert clean(lab).status == 0
    assert (pending(lab), far.mounts(), far.files(), lab.leftovers()) == (set(), [], [], [])


@needs_root
def test_another_machine_at_the_same_address_is_left_alone(lab: Laboratory, far: Remote) -> None:
    killed_while_measuring(lab, far)
    far.become_another()
    result = clean(lab)
    assert result.status != 0
    assert "node far was on another machine than" in result.stdout
    assert far.mounts()
    far.become_the_same()
    assert clean(lab).status == 0
    assert (far.mounts(), far.files(), lab.leftovers()) == ([], [], [])


@needs_root
def test_of_a_machine_that_was_booted_again_only_files_are_left_to_remove(lab: Laboratory, far: Remote) -> None:
    killed_while_measuring(lab, far)
    far.boot()
    assert far.files()
    result = clean(lab)
    assert result.status == 0, str(result)
    names = {line["registered"]: line["undo"] for line in lab.journal() if "registered" in line}
    did = {names[line["undone"]]: line["did"] for line in lab.journal() if "undone" in line}
    assert {name for name, words in did.items() if words} <= {"file.remove", "scratch.remove", "processes.end"}
    assert did["file.remove"] is not None
    assert (far.files(), lab.leftovers()) == ([], [])


@needs_root
def test_a_machine_that_can_not_be_reached_is_named_while_planning(lab: Laboratory, far: Remote) -> None:
    far.stop()
    result = lab.run(study(far, "true"))
    assert result.status == 2
    assert "destination" in result.stderr
    assert "far can't be reached" in result.stderr
    assert subprocess.run(["ls", str(lab.out)], capture_output=True, check=False).returncode != 0
