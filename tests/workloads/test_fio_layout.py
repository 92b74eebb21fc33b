"""Loads of fio's that lay out the same files, whose layout serves them all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from formats.fio.program import run_fio
from storlab.workloads.fio.layout import files_of
from storlab.workloads.fio.options import Option

BASE: dict[str, Option] = {"size": "1M", "bs": "4k", "rw": "randread", "ioengine": "psync"}


def of(**options: Option) -> str:
    return files_of([("global", {**BASE, **options}), ("load", {})])


@pytest.mark.parametrize(
    "options",
    [{"rw": "randwrite"}, {"ioengine": "mmap"}, {"iodepth": 16}, {"direct": 1}, {"runtime": "9s", "time_based": 1}],
)
def test_how_a_file_is_used_does_not_matter(options: dict[str, Option]) -> None:
    assert of(**options) == of()


@pytest.mark.parametrize(
    "options",
    [
        {"size": "2M"}, {"numjobs": 2}, {"filename": "other"}, {"bs": "1M"}, {"unlink": 1}, {"overwrite": 1},
        {"rw": "trim"}, {"ioengine": "null"}, {"ioengine": "filecreate"}, {"rw": "write:4k"}, {"made_up": 1},
    ],
)  # fmt: skip
def test_what_files_there_are_matters_and_so_does_what_is_not_known(options: dict[str, Option]) -> None:
    assert of(**options) != of()


@pytest.mark.parametrize("first", ["psync", "mmap"])
def test_fio_leaves_alone_what_another_of_them_has_laid_out(first: str, tmp_path: Path) -> None:
    def lay_out(rw: str, engine: str) -> str:
        options = [f"--{key}={value}" for key, value in {**BASE, "rw": rw, "ioengine": engine}.items()]
        run_fio("--create_only=1", "--name=load", *options, cwd=tmp_path).check_returncode()
        (made,) = tmp_path.glob("load.*")
        said = subprocess.run(["filefrag", "-v", made], check=True, capture_output=True, text=True).stdout
        return f"{said} {made.stat().st_mtime_ns}"

    before = lay_out("randwrite", first)
    assert lay_out("randread", "psync") == before
    assert lay_out("randrw", "libaio") == before
