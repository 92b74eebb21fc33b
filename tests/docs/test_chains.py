"""Chains over guests as docs/how-to/chains-that-cross-nodes.md shows them, and the node kind of examples/extensions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import storlab as python_interface
from laboratory import Ended, Laboratory, ended, kill, processes_with, wait_until
from laboratory.samples import sample
from laboratory.ssh import Remote, remote_machine
from storlab.records.run_folder import RunFolder

from .pages import EXTENSIONS, ROOT, blocks, nothing_is_left_of, storlab

PAGE = ROOT / "docs" / "how-to" / "chains-that-cross-nodes.md"
STUDIES = [block.text for block in blocks(PAGE) if (block.language, block.about) == ("toml", "study")]

guests = pytest.mark.needs("guests")


def ran(study: str, folder: Path, *sets: str, path: tuple[Path, ...] = ()) -> RunFolder:
    """A round of a study, of which nothing is left but its records. Machines without ZFS are small."""
    groups = re.findall(r"^\[nodes\.(\w+)\]", study, re.MULTILINE) if "zpool" not in study else []
    small = [f"nodes.{group}.memory=192M" for group in groups]
    (folder / "study.toml").write_text(study)
    words = [word for each in (*small, *sets) for word in ("--set", each)]
    ended = storlab("run", "study.toml", "--rounds", "1", *words, "--out", "run", "--quiet", folder=folder, path=path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = python_interface.open_run(folder / "run")
    assert set(run.trials["status"].to_list()) == {"done"}
    nothing_is_left_of(run.manifest.run)
    return run


def record(folder: Path, trial: int = 1) -> dict[str, Any]:
    """What is kept of a trial."""
    found: dict[str, Any] = json.loads((folder / "run" / "trials" / f"{trial:04}" / "trial.json").read_text())
    return found


def journalled(folder: Path, undo: str, word: str = "") -> int:
    """How often something was set up that is undone so, and has the word among its arguments."""
    lines = (folder / "run" / "journal.jsonl").read_text().splitlines()
    return sum(f'"undo":"{undo}"' in line and word in line for line in lines)


def layers(folder: Path, trial: int = 1) -> dict[str, list[str]]:
    """Node → the layers that were set up for it."""
    return {node: [fact["layer"] for fact in found] for node, found in record(folder, trial)["facts"].items()}


@guests
def test_a_disk_is_served_over_nbd_or_is_the_clients_own(tmp_path: Path) -> None:
    ran(STUDIES[0], tmp_path, "workload.log.fio.size=64k")
    for trial in (1, 2):
        found, transport = layers(tmp_path, trial), record(tmp_path, trial)["levels"]["transport"]
        assert ("server" in found) == (transport == "nbd"), found
        assert found["client"][-2:] == ["mkfs", "mount"]


@guests
def test_a_disk_its_server_and_the_client_are_on_three_machines(tmp_path: Path) -> None:
    ran(STUDIES[1].replace("--size=64M", "--size=1M"), tmp_path)
    assert {"store", "server", "client"} <= set(layers(tmp_path))


@pytest.mark.needs("zfs")
def test_machines_have_a_raidz_of_three_disks_each_and_one_folder(tmp_path: Path) -> None:
    sizes = ["workload.pool.fio.size=2M", "workload.folder.fio.size=1M"]
    run = ran(STUDIES[2], tmp_path, *sizes, "nodes.vm.count=2", "nodes.vm.memory=448M")
    nodes = ["vm-1", "vm-2"]
    loads = run.metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null(), metric="write.bytes")
    found = set(loads.select("source", "node").iter_rows())
    assert {(load, node) for load in ("pool", "folder") for node in nodes} <= found
    assert loads.filter(source="folder")["value"].to_list() == [1024**2] * 2, "each writes files of its own"
    for node in nodes:
        assert layers(tmp_path)[node].count("virtio-blk") == 3


@pytest.mark.needs("zfs")
def test_a_pool_is_kept_for_a_round_and_one_volume_in_it_has_two_clients(tmp_path: Path) -> None:
    words = ['[factors]\nbs = ["4k", "64k"]\n', 'bs = "{bs}"']
    text = STUDIES[3].replace("[nodes.store]", f"{words[0]}\n[nodes.store]").replace('bs = "4k"', words[1])
    run = ran(text, tmp_path, "workload.write.fio.size=1M", "nodes.c.memory=192M")
    assert run.trials["status"].to_list() == ["done"] * 2
    assert run.trials["block"].n_unique() == 1, "both are of one round's pool"
    assert (journalled(tmp_path, "zpool.destroy"), journalled(tmp_path, "server.stop", "qemu-nbd")) == (1, 2)
    assert {"c-1", "c-2"} <= set(layers(tmp_path))


@guests
def test_redis_its_disk_and_its_client_are_on_three_machines(installed: tuple[Path, ...], tmp_path: Path) -> None:
    study = (EXTENSIONS / "three-machines.toml").read_text()
    run = ran(study, tmp_path, 'requests="200"', 'factors.appendfsync=["no"]', path=installed)
    assert "set.rate" in run.metrics["metric"].to_list()
    assert layers(tmp_path)["db"][-3:] == ["mkfs", "mount", "redis"]


far_machine = pytest.mark.needs("root", "sshd")


@pytest.fixture
def far(lab: Laboratory, installed: tuple[Path, ...]) -> Iterator[Remote]:
    lab.environment["PYTHONPATH"] = os.pathsep.join(map(str, installed))
    with remote_machine(lab.folder / "far", lab.scratch) as remote:
        yield remote


def study(far: Remote, load: str) -> str:
    return sample(__file__, "cases/far.toml", config=far.config, load=load)


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


@far_machine
def test_a_stack_is_set_up_on_the_other_machine_and_torn_down_there_and_one_that_is_away_is_named(
    lab: Laboratory, far: Remote
) -> None:
    result = lab.run(study(far, "cat /etc/machine-id; df --output=fstype {target}"))
    assert result.status == 0, str(result)
    assert [record.status for record in lab.records()] == ["done", "done"]
    said = (lab.out / "trials" / "0001" / "far" / "load" / "stdout").read_text().split()
    assert said == [far.run("cat", "/etc/machine-id").strip(), "Type", "ext4"]
    assert {line["node"]["machine"]["id"] for line in lab.journal() if line.get("undo") == "loop.detach"} == {said[0]}
    assert (far.mounts(), far.files(), lab.leftovers()) == ([], [], [])
    far.stop()
    other = lab.folder / "other"
    refused = lab.storlab("run", lab.study(study(far, "true")), "--out", other)
    assert refused.status == 2
    assert "destination" in refused.stderr and "far can't be reached" in refused.stderr
    assert not other.exists()


@far_machine
def test_what_a_killed_run_left_there_stays_pending_until_that_machine_is_reached_and_is_undone_there(
    lab: Laboratory, far: Remote
) -> None:
    killed_while_measuring(lab, far)
    far.stop()
    result = clean(lab)
    assert result.status != 0
    for words in ("mount.unmount", "node far can't be reached", "Connection refused"):
        assert words in result.stdout
    assert pending(lab) == {"processes.end", "scratch.remove", "file.remove", "loop.detach", "mount.unmount"}
    far.start()
    far.become_another()
    result = clean(lab)
    assert result.status != 0
    assert "node far was on another machine than" in result.stdout
    assert far.mounts(), "another machine at the same address is left alone"
    far.become_the_same()
    result = clean(lab)
    assert result.status == 0, str(result)
    assert "unmounted" in result.stdout
    assert (pending(lab), far.mounts(), far.files(), lab.leftovers()) == (set(), [], [], [])


@far_machine
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


@far_machine
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
