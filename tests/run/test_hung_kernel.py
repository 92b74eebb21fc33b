"""A load that hangs in the kernel, where not even KILL ends it: Storlab does not hang with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from laboratory import Laboratory, needs_root

STUDY = """
primary = "elapsed"
stack = [{ layer = "file", size = "32M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
repeat = { until = "max", min = 1, max = 1 }
trial = { timeout = "10s" }
[workload.load]
command = { argv = ["sh", "-c", "fsfreeze --freeze $0; exec touch $0/x", "{target}"] }
"""


@needs_root
@pytest.mark.slow
def test_what_hangs_in_the_kernel_is_left_behind_by_name_and_clean_ends_it_once_it_can_be(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storlab.nodes.process._REST", 1.0)
    monkeypatch.setattr("storlab.nodes.processes._PATIENCE", 1.0)
    monkeypatch.setattr("storlab.nodes.undo._BUSY_WAIT", 0.02)
    try:
        outcome = lab.execute(STUDY)
        (record,) = lab.records()
        assert record.status == "failed"
        left = "\n".join(outcome.left_behind)
        assert re.search("mount.unmount.* target is busy", left), left
        assert "can't be killed: they hang in the kernel" in left, left
        assert lab.links == [outcome.folder.manifest.run], "`clean` knows of it"
    finally:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(lab.scratch) in line:
                subprocess.run(["fsfreeze", "--unfreeze", line.split()[4]], check=True)
    result = lab.storlab("clean", "--yes")
    assert result.status == 0, str(result)
    assert lab.leftovers() == []
