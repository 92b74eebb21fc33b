"""What the workload posix looks at with others: several nodes on the same files, and whoever serves them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storlab.workloads.posix.checks.table import BETWEEN
from storlab.workloads.posix.results import read_checks
from storlab.workloads.posix.server import Seen, judge
from storlab.workloads.posix.workload import program

Outcomes = Mapping[str, tuple[str, str]]
LIMIT = 60  # s: this machine may be busy
STALE = """
import os, runpy, sys
pread = os.pread
def stale(file, length, at, kept={}):
    return kept.setdefault((os.readlink(f"/proc/self/fd/{file}"), at), pread(file, length, at))
os.pread = stale
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A node that gives what it once read for ever, as one does whose cache nobody corrects."""


def looked(root: Path, names: list[str], second: str = "") -> list[Outcomes]:
    """What two nodes say, the ``second`` of which may run the program in another way."""
    file = root / "checks.pyz"
    file.write_bytes(program())
    running = []
    for me, way in (("a", ""), ("b", second)):
        python = [sys.executable, "-I", *(["-c", way] if way else []), str(file)]
        options = ["--nodes=a,b", f"--me={me}", f"--common={root}/common"]
        argv = [*python, f"{root}/own-{me}", str(LIMIT), *options, *names]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    found = list[Outcomes]()
    for process in running:
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, b"")
        found.append({check.check: (check.outcome, check.reason) for check in read_checks(output, names)})
    return found


def test_on_one_machine_two_nodes_see_all_of_each_other_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    assert looked(tmp_path, list(BETWEEN)) == [dict.fromkeys(BETWEEN, ("pass", ""))] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["checks.pyz"]


def test_a_node_with_a_stale_cache_fails_and_the_other_one_does_not_wait_for_it(tmp_path: Path) -> None:
    first, second = looked(tmp_path, ["nodes-write-while-open", "nodes-mmap-read", "nodes-mmap-load"], STALE)
    assert first == dict.fromkeys(first, ("pass", ""))
    assert second == {
        "nodes-write-while-open": ("fail", "what another node writes to an open file is read not within 3 s"),
        "nodes-mmap-read": ("fail", "what another node stored and synced is read not within 3 s"),
        "nodes-mmap-load": ("pass", ""),
    }


def test_one_node_alone_can_not_look_and_one_whose_others_are_gone_gives_up(tmp_path: Path) -> None:
    file = tmp_path / "checks.pyz"
    file.write_bytes(program())

    def said(*options: str) -> Outcomes:
        argv = [sys.executable, "-I", str(file), str(tmp_path / "own"), "1", *options, "nodes-create"]
        output = subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout
        return {check.check: (check.outcome, check.reason) for check in read_checks(output, ["nodes-create"])}

    assert said()["nodes-create"][0] == "unsupported"
    assert said("--nodes=a,b", "--me=a", f"--common={tmp_path}/common")["nodes-create"] == ("fail", "no answer in 1 s")


SYNCED = {"size": 65536, "same": True, "placed": True}


@pytest.mark.parametrize(
    ("synced", "outcome", "said"),
    [
        ({}, "pass", ""),
        ({"placed": None}, "pass", "does not say"),
        ({"size": 0, "same": False, "placed": None}, "fail", "after fsync the server's file has 0 of 65536 B"),
        ({"same": False}, "fail", "has other contents"),
        ({"placed": False}, "fail", "has not synced them"),
    ],
)
def test_what_the_server_has_of_an_open_file_says_whether_fsync_reached_it(
    synced: dict[str, Any], outcome: str, said: str
) -> None:
    found = judge(Seen.model_validate(SYNCED | synced))
    assert found[0] == outcome and said in found[1]
    assert bool(found[1]) == bool(said)


def test_a_file_is_seen_as_it_is_while_it_is_held_open(tmp_path: Path) -> None:
    file, folder = tmp_path / "checks.pyz", tmp_path / "held"
    file.write_bytes(program())
    look = Path(__file__).parents[2] / "src/storlab/workloads/posix/checks/seen.py"

    def seen() -> Seen:
        output = subprocess.run([sys.executable, "-I", str(look), str(folder)], capture_output=True, check=True).stdout
        return Seen.model_validate_json(output)

    assert judge(seen()) == ("fail", "after fsync the server's file has 0 of 65536 B")
    holding = subprocess.Popen([sys.executable, "-I", str(file), str(folder), "--hold"], stdout=subprocess.PIPE)
    try:
        assert holding.stdout is not None and holding.stdout.readline() == b"ready\n"
        assert judge(seen())[0] == "pass"
        (folder / "synced").write_bytes(b"x" * 65536)
        assert judge(seen()) == ("fail", "after fsync the server's file has other contents")
        (folder / "synced").unlink()
        (folder / "synced").symlink_to("/etc/passwd")
        ended = subprocess.run([sys.executable, "-I", str(look), str(folder)], capture_output=True, check=False)
        assert ended.returncode == 1 and b"Too many levels of symbolic links" in ended.stderr
    finally:
        holding.kill()
        holding.communicate()


def test_lines_of_the_server_are_read_like_all_others() -> None:
    line = json.dumps({"check": "fsync-reaches-server", "outcome": "pass", "reason": ""}).encode()
    assert read_checks(line, ["fsync-reaches-server"])[0].outcome == "pass"
