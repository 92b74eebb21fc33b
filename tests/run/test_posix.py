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
from storlab.report.model.conformance import OUTCOMES
from storlab.workloads.posix.checks.table import CHECKS

SHARES = """
primary = "posix.passed"
repeat = { until = "max", min = 1, max = 1 }
[factors.share-of]
virtiofs = [{ layer = "virtiofsd", cache = "auto", xattr = true }, { layer = "virtiofs" }]
9p       = [{ layer = "9p", cache = "none" }]
[nodes.v]
kind   = "vm"
count  = 2
memory = "256M"
stack  = [{ layer = "directory" }, "{share-of}"]
[workload.check]
shared_files = "same"
posix.checks = [
    "rename-over-open", "rename-exchange", "mmap-shared-write", "xattr-user", "flock", "fsync",
    "nodes-create", "nodes-write-close-open", "nodes-write-while-open", "nodes-mmap-read", "nodes-mmap-load",
    "nodes-lock-records", "nodes-flock", "fsync-reaches-server",
]
"""


def outcomes(lab: Laboratory) -> dict[tuple[int, str], tuple[str, str]]:
    """Cell and check → the worst outcome of any node, and its reason."""
    rows = derive(lab.run_folder).frame("checks").select("cell", "check", "outcome", "reason").rows()
    rows.sort(key=lambda row: OUTCOMES.index(row[2]), reverse=True)
    return {(cell, check): (outcome, reason) for cell, check, outcome, reason in rows}


@needs_root
def test_on_ext4_everything_is_there_for_a_confined_load_and_nothing_is_left(lab: Laboratory) -> None:
    lab.execute(mounted("posix = {}"))
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    found = outcomes(lab)
    assert {check: said for (_, check), said in found.items() if said[0] == "fail"} == {}
    assert sorted(check for _, check in found) == sorted(CHECKS)
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
def test_two_guests_say_what_virtiofs_and_9p_have_and_lack_and_no_trial_fails_for_that(near_lab: Laboratory) -> None:
    lab = near_lab
    lab.execute(SHARES)
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)] * 2
    found = outcomes(lab)
    own = ("rename-over-open", "rename-exchange", "mmap-shared-write", "xattr-user", "flock", "fsync")
    assert {check: found[1, check] for check in own} == dict.fromkeys(own, ("pass", ""))
    assert found[2, "mmap-shared-write"] == ("unsupported", "mmap: EINVAL")
    assert found[2, "rename-exchange"] == ("unsupported", "renameat2: EINVAL")
    assert found[2, "rename-over-open"] == ("fail", "fstat of the replaced file gives 1 links, not 0")
    assert found[2, "flock"] == found[2, "fsync"] == ("pass", "")
    for cell in (1, 2):  # what each sees of the other, and the host of both
        assert found[cell, "nodes-create"] == found[cell, "nodes-write-close-open"] == ("pass", "")
        assert found[cell, "nodes-lock-records"][0] == found[cell, "nodes-flock"][0] == "fail"
        assert found[cell, "fsync-reaches-server"][0] == "pass"
    late = "what another node stored and synced is in the mapping not within 3 s"
    assert found[1, "nodes-mmap-load"] == ("fail", late)
    assert found[2, "nodes-mmap-load"] == found[2, "nodes-mmap-read"] == ("unsupported", "mmap: EINVAL")
    assert found[2, "nodes-write-while-open"] == ("pass", "")  # virtiofs: late, by up to a second
    report = lab.storlab("report", lab.run_folder.path)
    assert "Conformance" in report.stdout, str(report)
    assert lab.leftovers() == []


LOAD = """
primary = "verify:posix.failed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false }, verify = { posix = { checks = ["flock", "fsync"] } } }
[[stack]]
layer = "directory"
[workload.load]
command = { argv = ["touch", "{target}/made-by-the-load"] }
"""


def test_a_directory_is_verified_after_its_load_and_the_results_are_the_runs(lab: Laboratory) -> None:
    lab.execute(LOAD)
    (record,) = lab.records()
    assert (record.status, record.loads) == ("done", {"load": ["host"], "verify": ["host"]})
    assert outcomes(lab) == {(1, "flock"): ("pass", ""), (1, "fsync"): ("pass", "")}
    metrics = derive(lab.run_folder).frame("metrics").filter(source="verify")
    assert dict(metrics.select("metric", "value").iter_rows()) == {
        "posix.passed": 2.0,
        "posix.failed": 0.0,
        "posix.unsupported": 0.0,
    }
    report = lab.storlab("report", lab.run_folder.path).stdout
    assert "Conformance" in report and "2 other checks" in report, report
    assert lab.leftovers() == []
