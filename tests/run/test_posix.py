"""The checks of the workload posix in whole studies: on a file system of its own, and on one folder in two guests."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, needs_root
from laboratory.guests import needs_guests
from run.test_files import mounted
from storlab.records.derive import derive
from storlab.workloads.posix.checks.table import CHECKS

SHARES = """
primary = "posix.passed"
repeat = { until = "max", min = 1, max = 1 }
[factors.share-of]
virtiofs = [{ layer = "virtiofsd", cache = "auto", xattr = true }, { layer = "virtiofs" }]
9p       = [{ layer = "9p", cache = "none" }]
[nodes.v]
kind   = "vm"
memory = "256M"
stack  = [{ layer = "directory" }, "{share-of}"]
[workload.check]
posix = { checks = ["rename-over-open", "rename-exchange", "mmap-shared-write", "xattr-user", "flock", "fsync"] }
"""


def outcomes(lab: Laboratory) -> dict[tuple[int, str], tuple[str, str]]:
    """Cell and check → outcome and reason."""
    rows = derive(lab.run_folder).frame("checks").select("cell", "check", "outcome", "reason").iter_rows()
    return {(cell, check): (outcome, reason) for cell, check, outcome, reason in rows}


@needs_root
def test_on_ext4_everything_is_there_for_a_confined_load_and_nothing_is_left(lab: Laboratory) -> None:
    lab.execute(mounted("posix = {}"))
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    found = outcomes(lab)
    assert {check: said for (_, check), said in found.items() if said[0] == "fail"} == {}
    assert [check for _, check in found] == list(CHECKS)
    assert found[1, "rename-exchange"] == found[1, "acl-access"] == found[1, "owners"] == ("pass", "")
    assert lab.leftovers() == []


class Near(Laboratory):
    """One with a short path, as the socket of virtiofsd must have: 107 bytes."""

    @property
    def scratch(self) -> Path:
        return self.folder


@pytest.fixture
def near_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        with contextlib.closing(Near(Path(folder))) as made:
            yield made


@needs_guests
def test_over_virtiofs_there_is_what_9p_lacks_and_no_trial_fails_for_that(near_lab: Laboratory) -> None:
    lab = near_lab
    lab.execute(SHARES)
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)] * 2
    found = outcomes(lab)
    names = list(dict.fromkeys(check for _, check in found))
    assert {check: found[1, check] for check in names} == dict.fromkeys(names, ("pass", ""))
    assert found[2, "mmap-shared-write"] == ("unsupported", "mmap: EINVAL")
    assert found[2, "rename-exchange"] == ("unsupported", "renameat2: EINVAL")
    assert found[2, "rename-over-open"] == ("fail", "fstat of the replaced file gives 1 links, not 0")
    assert found[2, "flock"] == found[2, "fsync"] == ("pass", "")
    report = lab.storlab("report", lab.run_folder.path)
    assert "Conformance" in report.stdout, str(report)
    assert lab.leftovers() == []
