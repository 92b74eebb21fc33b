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


def test_a_study_of_a_directory_works_without_root(lab: Laboratory) -> None:
    study = directory(f"fio = {FIO}").replace("drop_caches = false", "drop_caches = true")
    result = lab.run(study, wrapper=NOBODY, cwd="/")
    assert result.status == 0, str(result)
    (record,) = lab.records()
    assert record.status == "done"
    assert record.warnings == ["caches were not dropped before measuring: that needs root"]
    assert lab.leftovers() == []


@pytest.mark.skipif(shutil.which("bonnie++") is None, reason="bonnie++ is not installed")
def test_bonnie_is_told_no_user_without_root(lab: Laboratory) -> None:
    load = 'bonnie = { size = "1M", fast = true, seeks = 10, seekers = 1 }'
    result = lab.run(directory(load), wrapper=NOBODY, cwd="/")
    assert result.status == 0, str(result)
    (record,) = lab.records()
    assert (record.status, record.reason) == ("done", None)


def test_a_storm_of_files_works_without_root_but_for_dropping_caches_between_its_phases(lab: Laboratory) -> None:
    storm = "files = { files = 50, workers = 2, fsync = true, drop_caches = '{drop}' }".replace("'", '"')
    result = lab.run(directory(storm, rest="[factors.drop]\nlevels = [true, false]"), wrapper=NOBODY, cwd="/")
    assert result.status == 0, str(result)
    found = {record.levels["drop"]: (record.status, record.reason) for record in lab.records()}
    assert found["false"] == ("done", None)
    assert found["true"][0] == "unsupported"
    assert (found["true"][1] or "").startswith("no root privileges, needed for dropping caches between phases")
    assert lab.leftovers() == []


def test_a_study_of_loop_devices_is_refused_without_root_in_one_clear_sentence(lab: Laboratory) -> None:
    result = lab.run(LOOPS, wrapper=NOBODY, cwd="/")
    assert result.status == 2, str(result)
    assert result.stderr.startswith("storlab: nothing of this study can run here: no root privileges, needed for ")
    assert "(run it as root, or with sudo)" in result.stderr
    assert "Traceback" not in result.stderr
    assert not lab.out.exists()


def test_cells_that_need_root_are_unsupported_and_the_others_run(lab: Laboratory) -> None:
    stacks = """
[factors.on]
loop = [{ layer = "file", size = "16M" }, { layer = "loop" }]
folder = [{ layer = "directory" }]
"""
    study = directory('command = { argv = ["true"] }', rest=stacks).replace(
        '[{ layer = "directory" }]\nrep', '"{on}"\nrep'
    )
    result = lab.run(study, wrapper=NOBODY, cwd="/")
    assert result.status == 0, str(result)
    found = {record.levels["on"]: (record.status, record.reason) for record in lab.records()}
    assert found["folder"] == ("done", None)
    assert found["loop"] == (
        "unsupported",
        "no root privileges, needed for loop devices (run it as root, or with sudo)",
    )
    assert lab.leftovers() == []
