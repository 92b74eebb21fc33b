"""The layer, workload and probe of examples/extensions: found as an installed package's, run, and taken down."""

from __future__ import annotations

import os
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

import storlab as python_interface

from .pages import EXTENSIONS, start_storlab, storlab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and mounts need root")


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Path, ...]:
    """Folders for Python's path on which the package stands as an installer leaves it."""
    project = tomllib.loads((EXTENSIONS / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "site" / f"storlab_examples-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    heading = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(heading)
    groups = project["entry-points"].items()
    lines = [line for group, names in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return metadata.parent, EXTENSIONS


def test_extensions_are_listed_beside_what_is_built_in(installed: tuple[Path, ...], tmp_path: Path) -> None:
    said = storlab("list", folder=tmp_path, path=installed).stdout
    names = {line.split()[0] for line in said.splitlines() if line.strip()}
    assert {"overlay", "dd", "dirty-pages"} <= names


@needs_root
def test_a_round_of_the_extensions_study_runs_and_leaves_nothing(installed: tuple[Path, ...], tmp_path: Path) -> None:
    study = str(EXTENSIONS / "overlay.toml")
    ended = storlab("run", study, "--rounds", "1", "--out", "run", "--quiet", folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    run = python_interface.open_run(tmp_path / "run")
    assert run.trials["status"].to_list() == ["done", "done"]
    found = set(run.metrics.select("source", "metric").iter_rows())
    assert {("log", "write.iops"), ("log", "write.bandwidth"), ("log", "elapsed")} <= found
    assert ("storage", "write.amplification") in found
    assert {("probe:dirty-pages", "dirty.max"), ("probe:dirty-pages", "writeback.max")} <= found

    _nothing_is_left_of(run.manifest.run)


@needs_root
def test_clean_takes_down_what_an_extension_put_up_before_it_was_killed(
    installed: tuple[Path, ...], tmp_path: Path
) -> None:
    study = str(EXTENSIONS / "overlay.toml")
    words = ["run", study, "--only", "on=overlayfs", "--rounds", "9", "--out", "run", "--quiet"]
    with start_storlab(*words, folder=tmp_path, path=installed) as running:
        try:
            _wait_for_mount("overlay", tmp_path / "run")
        finally:
            running.kill()
    ended = storlab("clean", "run", folder=tmp_path, path=installed)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "merged" in ended.stdout
    _nothing_is_left_of(python_interface.open_run(tmp_path / "run").manifest.run)


def _wait_for_mount(filesystem: str, run: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (run / "manifest.json").exists():
            identity = python_interface.open_run(run).manifest.run
            mounts = Path("/proc/self/mountinfo").read_text().splitlines()
            if any(identity in line and f" - {filesystem} " in line for line in mounts):
                return
        time.sleep(0.05)
    pytest.fail(f"no {filesystem} was mounted within a minute")


def _nothing_is_left_of(identity: str) -> None:
    assert identity not in Path("/proc/self/mountinfo").read_text()
    assert identity not in subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout
    assert not list(Path("/var/tmp").glob(f"*{identity}*"))
