"""Whole studies of something planted: what "why" must name is known, and what it must not.

``make attack`` runs ``STORLAB_ATTACKS`` of each. Levels that are alike may have something named by chance, in one study
of twenty: what that was is printed. What was planted in both alike is never named. Waits are those of the whole
machine, and these tests may run side by side: so they plant waits for different locks.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from attacks import ATTACKS
from laboratory import Laboratory

CASES = Path(__file__).parent.parent / "probes" / "cases"
ROUNDS = 8
PIPE = {  # since 6.15, and before
    f"{what}.mutex.{caller}" for what in ("waits", "wait-time") for caller in ("anon_pipe_write", "pipe_write")
}
FILE = {  # since 6.6, and before
    f"{what}.rwsem-write.{caller}"
    for what in ("waits", "wait-time")
    for caller in ("shmem_file_write_iter", "generic_file_write_iter")
}
MUCH = {"self.planted/much"}
ON_HOST = 'stack = [{ layer = "directory" }]'
IN_GUEST = 'nodes.vm = { kind = "vm", memory = "192M", keep = "run", stack = [{ layer = "directory" }] }'
NUMBERS = range(ATTACKS or 1)


def study(probe: str, argv: list[str], levels: tuple[str, str], where: str = ON_HOST) -> str:
    return f"""
primary = "elapsed"
repeat = {{ until = "max", min = {ROUNDS}, max = {ROUNDS} }}
trial = {{ settle = {{ drop_caches = false }} }}
factors.level.levels = {json.dumps(levels)}
{where}
[probes.{probe}]
[workload.load]
command = {{ argv = {json.dumps(argv)} }}
"""


def waiting(words: str) -> list[str]:
    """What is planted and how often, with ``{level}``. A guest has no file of this machine's, so it gets the text."""
    script = (CASES / "planted_locks.py").read_text().replace("{", "{{").replace("}", "}}")
    return ["python3", "-c", script, *words.split()]


def named(lab: Laboratory, text: str) -> set[str]:
    """What "why" names of the one comparison."""
    (comparison,) = lab.succeed(text, trials=2 * ROUNDS, unconfined=True).summary.comparisons
    assert comparison.why is not None
    found = {name for each in comparison.why.differences for name in (each.metric, *each.alike)}
    print(f"\nnamed: {len(found)} {sorted(found)}")
    return found


@pytest.mark.needs("root")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_mutex_that_one_level_waits_for_is_named_by_its_caller(number: int, lab: Laboratory) -> None:
    found = named(lab, study("locks", waiting("pipe {level} futex 4"), ("0", "12")))
    assert found & PIPE, found


@pytest.mark.needs("root")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_lock_that_both_levels_wait_for_alike_is_not_named(number: int, lab: Laboratory) -> None:
    found = named(lab, study("locks", waiting("file 6 futex 4 pipe {level}"), ("0", "00")))
    assert not found & FILE, found


@pytest.fixture
def busy(tmp_path: Path) -> str:
    program = str(tmp_path / "planted")
    options = ["-DAPART", "-O1", "-fno-omit-frame-pointer", "-o", program]
    subprocess.run(["clang", *options, str(CASES / "planted_cpu.c")], check=True)
    return program


@pytest.mark.needs("root", "clang")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("levels", [("0", "4"), ("2", "02")] if ATTACKS else [("0", "4")])
def test_a_function_is_named_where_its_share_of_the_cpu_differs(
    number: int, levels: tuple[str, str], busy: str, lab: Laboratory
) -> None:
    """None of the program's CPU in one level, four fifths in the other; and as much in both."""
    found = named(lab, study("profile", [busy, "{level}"], levels))
    assert bool(found & MUCH) == (levels == ("0", "4")), found


@pytest.mark.needs("root", "guests")
def test_a_mutex_in_a_guest_is_named_by_its_caller(lab: Laboratory) -> None:
    found = named(lab, study("locks", waiting("pipe {level} futex 2"), ("0", "8"), IN_GUEST))
    assert found & PIPE, found


@pytest.mark.needs("guests")
def test_a_disk_that_was_made_slow_is_found_and_its_waiting_is_named(lab: Laboratory) -> None:
    text = (Path(__file__).parents[2] / "examples" / "slow-disk.toml").read_text().partition("primary")[2]
    study = text.replace('until = "decided"\nmax   = 12', f'until = "max"\nmin = {ROUNDS}\nmax = {ROUNDS}')
    (comparison,) = lab.succeed(f"primary{study}", trials=2 * ROUNDS).summary.comparisons
    assert (comparison.a, comparison.verdict) == ("fast", "better")
    assert comparison.why is not None
    found = [name for each in comparison.why.differences for name in (each.metric, *each.alike)]
    assert found[0] == "disk.target.read_time", found


FAULTS = """
primary = "read.iops"
repeat = { until = "max", min = 2, max = 2 }
[nodes.vm]
kind = "vm"
memory = "192M"
keep = "run"
stack = [{ layer = "file", size = "32M" }, { layer = "virtio-blk" }, "{fault}"]
[factors.fault]
slow = { layer = "dm", target = "delay", reads = "40ms", after = "5s" }
dead = { layer = "dm", target = "error", after = "5s" }
[workload.load]
fio = { rw = "randread", bs = "4k", direct = true, size = "16M", runtime = "6s", time_based = true, rate_iops = 50 }
"""


@pytest.mark.needs("guests")
def test_a_disk_that_becomes_slow_or_dies_under_a_load_does_so_in_every_round(lab: Laboratory) -> None:
    lab.execute(FAULTS)
    for record in lab.records():
        if record.levels["fault"] == "dead":
            assert record.status == "failed" and "Input/output error" in (record.reason or ""), record.reason
            continue
        assert record.status == "done", record.reason
        load = lab.run_folder.trial_folder(record.trial) / "vm" / "load" / "fio.json"
        latency = json.loads(load.read_text())["jobs"][0]["read"]["clat_ns"]
        assert latency["min"] < 20e6 < 39e6 < latency["max"], latency
    assert len(lab.records()) == 4 and lab.leftovers() == []
