"""A daemon that is held to a fraction of a CPU is found to be slower, and one beside another like it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.images.virtiofsd import find_virtiofsd

PERIOD, QUOTA = 100_000, 1_000  # µs: a hundredth, in slices too short for a whole load to fit into one
HELD = """#!/bin/sh
[ "$1" = --version ] || echo $$ > {group}/cgroup.procs
exec {words} "$@"
"""
STUDY = """
primary = "elapsed"
repeat = {{ until = "decided", min = 5, max = 12 }}
trial = {{ settle = {{ sync = false, drop_caches = false }} }}
[probes]
[factors.daemon]
one   = {{ layer = "virtiofsd", cache = "none" }}
other = {{ layer = "virtiofsd", cache = "none", allow_mmap = true }}   # nothing maps anything
held  = {{ layer = "virtiofsd", cache = "none", path = "{path}" }}
[[compare]]
pairs = [["one", "held"], ["one", "other"]]
[nodes.vm]
kind = "vm"
memory = "256M"
stack = [{{ layer = "directory" }}, "{{daemon}}", {{ layer = "virtiofs" }}]
[workload.write]
command = {{ argv = ["dd", "if=/dev/zero", "of={{target}}/x", "bs=512", "count=800", "status=none"] }}
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A virtiofsd that gets a hundredth of a CPU."""
    base = Path("/sys/fs/cgroup/cpu")
    group = (base if base.is_dir() else Path("/sys/fs/cgroup")) / f"held-{tmp_path.name}"
    words = find_virtiofsd("rust")
    if words is None:
        pytest.skip("virtiofsd is not there: `storlab image virtiofsd` unpacks it")
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
        elif (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(QUOTA))
        else:
            pytest.skip("no cgroup of this machine limits CPU time")
        script = tmp_path / "held"
        script.write_text(HELD.format(group=group, words=" ".join(words)))
        script.chmod(0o755)
        yield script
    finally:
        group.rmdir()


@pytest.mark.timeout(900)
@needs_guests
def test_a_daemon_that_is_held_back_is_worse_and_two_alike_are_not_told_apart(lab: Laboratory, held: Path) -> None:
    outcome = lab.execute(STUDY.format(path=held))
    assert outcome.ending == "complete", [record.reason for record in lab.records() if record.status != "done"]
    answers = {(each.a, each.b): each for each in outcome.summary.comparisons}
    assert answers["one", "held"].verdict == "better", answers
    assert answers["one", "other"].verdict in ("undecided", "equivalent"), answers
    assert lab.leftovers() == []
