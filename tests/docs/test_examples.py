"""Every study in examples/ can be planned here; those that take seconds are run for a round."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import EXAMPLES, EXTENSIONS, ROOT, blocks, need_image, storlab

root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")
OTHERS = (EXTENSIONS, EXAMPLES / "suite")  # suite files are no studies
STUDIES = sorted(path for path in EXAMPLES.rglob("*.toml") if not any(map(path.is_relative_to, OTHERS)))
DEVICE = EXAMPLES / "device.toml"
GUESTS = (EXAMPLES / "vm-disks.toml", EXAMPLES / "shaped-network.toml", EXAMPLES / "shares.toml")


@pytest.mark.parametrize("study", [s for s in STUDIES if s != DEVICE], ids=lambda path: path.stem)
def test_a_plan_of_the_study_runs_here(study: Path, tmp_path: Path) -> None:
    if study in GUESTS:
        need_image()
    ended = storlab("plan", str(study), folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    notes = [line for line in ended.stdout.splitlines() if line.startswith("Note:")]
    shared = ("Kept for each round", "set up side by side")
    assert all(any(said in line for said in shared) for line in notes), "what is shared is said, and nothing is amiss"


@root
def test_the_ten_lines_of_the_readme_are_ten_and_run(tmp_path: Path) -> None:
    study = EXAMPLES / "ten-lines.toml"
    assert [b.text for b in blocks(ROOT / "README.md") if b.language == "toml"] == [study.read_text()]
    assert len(study.read_text().splitlines()) <= 10
    ended = storlab("run", str(study), "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "ext4 against xfs" in ended.stdout


@root
def test_cells_of_one_stack_share_it_where_stacks_are_kept(tmp_path: Path) -> None:
    study = str(EXAMPLES / "keep-stacks.toml")
    small = ["--only", "fs=ext4", "--only", "bs=64k,1M", "--set", "workload.read.fio.size=32M"]
    ended = storlab("run", study, *small, "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    journal = (tmp_path / "run" / "journal.jsonl").read_text()
    assert journal.count('"undo":"loop.detach"') == 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A loop device that stands for a disk of the user's."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(128 * 1024**2)
    command = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


@root
def test_the_device_study_refuses_a_disk_with_data_until_it_is_named_twice(disk: str, tmp_path: Path) -> None:
    chosen = ["--set", f"device={disk}", "--set", "span=32M", "--set", "runtime=1s"]
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    refused = storlab("plan", str(DEVICE), *chosen, folder=tmp_path)
    assert refused.returncode == 2
    assert "carries a signature of ext4" in refused.stderr
    twice = [*chosen, "--set", f"stack.0.wipe={disk}"]
    ended = storlab("run", str(DEVICE), *twice, "--rounds", "1", "--quiet", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
