"""Without root: what needs it is unsupported, with a clear sentence; a study of a directory works."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.studies import FIO, LOOPS, directory
from storlab.report.language.say import said

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()


@pytest.fixture
def lab() -> Iterator[Laboratory]:
    """A laboratory that anybody may use."""
    reads = subprocess.run([*NOBODY, sys.executable, "-c", "import storlab"], capture_output=True, cwd="/")
    if reads.returncode != 0:
        pytest.skip(f"this checkout or its Python can't be read without root: {reads.stderr.decode()[-200:]}")
    folder = Path(tempfile.mkdtemp(prefix="unprivileged-", dir="/tmp"))
    try:
        with contextlib.closing(Laboratory(folder)) as laboratory:
            for path in (folder, laboratory.scratch):
                path.chmod(0o1777)
            yield laboratory
    finally:
        shutil.rmtree(folder)


@pytest.mark.needs("bonnie++")
def test_loads_on_files_work_without_root_but_for_dropping_caches_between_their_phases(lab: Laboratory) -> None:
    storm = "files = { files = 50, workers = 2, fsync = true"
    loads = f"""
[workload.dropping]
{storm}, drop_caches = true }}
[workload.bonnie]
bonnie = {{ size = "1M", fast = true, seeks = 10, seekers = 1 }}
[factors]
load = ["load", "dropping", "bonnie"]
"""
    study = directory(f"{storm} }}", trial='workloads = ["{load}"]', rest=loads)
    result = lab.run(f"compare = []\n{study}", wrapper=NOBODY, cwd="/")
    assert result.status == 0, str(result)
    found = {record.levels["load"]: (record.status, record.reason) for record in lab.records()}
    assert found["load"] == found["bonnie"] == ("done", None)
    status, reason = found["dropping"]
    assert status == "unsupported"
    assert (reason or "").startswith("no root privileges, needed for dropping caches between phases")
    assert lab.leftovers() == []


def test_a_study_of_loop_devices_is_refused_without_root_in_one_clear_sentence(lab: Laboratory) -> None:
    result = lab.run(LOOPS, wrapper=NOBODY, cwd="/")
    assert result.status == 2, str(result)
    assert result.stderr.startswith("storlab: nothing of this study can run here: no root privileges, needed for ")
    assert "(run it as root, or with sudo)" in result.stderr
    assert "Traceback" not in result.stderr
    assert not lab.out.exists()


def test_cells_that_need_root_are_unsupported_and_those_of_a_directory_run(lab: Laboratory) -> None:
    loop, folder = '[{ layer = "file", size = "16M" }, { layer = "loop" }]', '[{ layer = "directory" }]'
    stacks = f"[factors.on]\nloop = {loop}\nfolder = {folder}"
    study = directory(f"fio = {FIO}", rest=stacks).replace("drop_caches = false", "drop_caches = true")
    result = lab.run(study.replace(f"{folder}\nrep", '"{on}"\nrep'), wrapper=NOBODY, cwd="/")
    assert result.status == 3, str(result)  # of its one comparison, a side is missing
    found = {record.levels["on"]: record for record in lab.records()}
    assert (found["folder"].status, found["folder"].reason) == ("done", None)
    assert said(found["folder"].warnings) == ("caches were not dropped before measuring: that needs root",)
    remedy = "no root privileges, needed for loop devices (run it as root, or with sudo)"
    assert (found["loop"].status, found["loop"].reason) == ("unsupported", remedy)
    assert lab.leftovers() == []
