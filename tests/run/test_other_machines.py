"""What a journal names belongs to one machine, and to one of its boots: elsewhere nothing is touched."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

import orjson

from laboratory import Laboratory, ended, kill, needs_root, wait_until

STUDY = """
primary = "elapsed"
stack = [
    { layer = "file", size = "64M" },
    { layer = "loop" },
    { layer = "mkfs", type = "ext4" },
    { layer = "mount" },
]
[probes]
[workload.load]
command = { argv = ["sleep", "3600"] }
"""


def killed_while_measuring(lab: Laboratory) -> None:
    process = lab.start_run(STUDY)
    assert wait_until(lambda: process.poll() is not None or lab.sleeps(), 60)
    kill(process)
    assert ended(process).status == -9
    assert wait_until(lambda: not lab.processes(), 10.0)


def mounts(lab: Laboratory) -> list[str]:
    return [each.removeprefix("mount ") for each in lab._leftovers() if each.startswith("mount ")]


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


@needs_root
def test_what_another_machine_has_stays_pending_and_is_reported(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    before = (lab.out / "journal.jsonl").read_bytes()
    stands = set(lab._leftovers())
    rewrite(lab, other_machine)
    marked = subprocess.Popen(
        ["sleep", "3600"], env={**os.environ, "STORLAB_RUN": lab.identity, "STORLAB_NODE": "host"}
    )
    try:
        cleaned = lab.storlab("clean", lab.out)
        assert cleaned.status == 1, str(cleaned)
        reported = cleaned.stdout.splitlines()
        assert len(reported) == sum("registered" in line for line in lab.journal()) - sum(
            "undone" in line for line in lab.journal()
        )
        assert all("node host was on another machine than this is now" in line for line in reported)
        assert f"its machine id was {uuid.UUID(int=1).hex}" in reported[0]
        assert marked.poll() is None, "processes are ended on their own machine alone"
        assert set(lab._leftovers()) == stands | {f"process {marked.pid}"}
        resumed = lab.storlab("resume", lab.out)
        assert resumed.status != 0
        assert "another machine" in resumed.stderr
        (lab.out / "journal.jsonl").write_bytes(before)
        assert lab.storlab("clean", lab.out).status == 0
        assert marked.wait(10) == -9
    finally:
        marked.kill()
        marked.wait()
    assert lab.leftovers() == []


@needs_root
def test_after_a_boot_only_what_outlives_one_is_undone(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    (mount,) = mounts(lab)
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", mount], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run(["umount", mount], check=True)
    rewrite(lab, other_boot)
    try:  # somebody's loop device now, as far as the journal can tell
        cleaned = lab.storlab("clean", lab.out)
        assert cleaned.status == 0, str(cleaned)
        assert "loop.detach" not in cleaned.stdout
        assert subprocess.run(["losetup", device], capture_output=True, check=False).returncode == 0
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    assert lab.leftovers() == []


@needs_root
def test_a_node_of_a_kind_that_nobody_knows_here_stays_pending(lab: Laboratory) -> None:
    killed_while_measuring(lab)
    before = (lab.out / "journal.jsonl").read_bytes()
    rewrite(lab, lambda node: node.update(kind="fleet", name="f1"))
    cleaned = lab.storlab("clean", lab.out)
    assert cleaned.status == 1
    assert "node f1: nothing that is installed here knows its kind, fleet" in cleaned.stdout
    (lab.out / "journal.jsonl").write_bytes(before)
    assert lab.storlab("clean", lab.out).status == 0
    assert lab.leftovers() == []
