"""Chains over guests as docs/how-to/chains-that-cross-nodes.md shows them, and the node kind of examples/extensions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import storlab as python_interface
from storlab.records.run_folder import RunFolder

from .pages import EXTENSIONS, ROOT, blocks, nothing_is_left_of, storlab

PAGE = ROOT / "docs" / "how-to" / "chains-that-cross-nodes.md"
STUDIES = [block.text for block in blocks(PAGE) if (block.language, block.about) == ("toml", "study")]

guests = pytest.mark.needs("guests")


def ran(study: str, folder: Path, *sets: str, path: tuple[Path, ...] = ()) -> RunFolder:
    """A round of a study, of which nothing is left but its records. Machines without ZFS are small."""
    groups = re.findall(r"^\[nodes\.(\w+)\]", study, re.MULTILINE) if "zpool" not in study else []
    small = [f"nodes.{group}.memory=192M" for group in groups]
    (folder / "study.toml").write_text(study)
    words = [word for each in (*small, *sets) for word in ("--set", each)]
    ended = storlab("run", "study.toml", "--rounds", "1", *words, "--out", "run", "--quiet", folder=folder, path=path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = python_interface.open_run(folder / "run")
    assert set(run.trials["status"].to_list()) == {"done"}
    nothing_is_left_of(run.manifest.run)
    return run


def record(folder: Path, trial: int = 1) -> dict[str, Any]:
    """What is kept of a trial."""
    found: dict[str, Any] = json.loads((folder / "run" / "trials" / f"{trial:04}" / "trial.json").read_text())
    return found


def journalled(folder: Path, undo: str, word: str = "") -> int:
    """How often something was set up that is undone so, and has the word among its arguments."""
    lines = (folder / "run" / "journal.jsonl").read_text().splitlines()
    return sum(f'"undo":"{undo}"' in line and word in line for line in lines)


def layers(folder: Path, trial: int = 1) -> dict[str, list[str]]:
    """Node → the layers that were set up for it."""
    return {node: [fact["layer"] for fact in found] for node, found in record(folder, trial)["facts"].items()}


@guests
def test_a_disk_is_served_over_nbd_or_is_the_clients_own(tmp_path: Path) -> None:
    ran(STUDIES[0], tmp_path, "workload.log.fio.size=64k")
    for trial in (1, 2):
        found, transport = layers(tmp_path, trial), record(tmp_path, trial)["levels"]["transport"]
        assert ("server" in found) == (transport == "nbd"), found
        assert found["client"][-2:] == ["mkfs", "mount"]


@guests
def test_a_disk_its_server_and_the_client_are_on_three_machines(tmp_path: Path) -> None:
    ran(STUDIES[1].replace("--size=64M", "--size=1M"), tmp_path)
    assert {"store", "server", "client"} <= set(layers(tmp_path))


@pytest.mark.needs("zfs")
def test_machines_have_a_raidz_of_three_disks_each_and_one_folder(tmp_path: Path) -> None:
    sizes = ["workload.pool.fio.size=2M", "workload.folder.fio.size=1M"]
    run = ran(STUDIES[2], tmp_path, *sizes, "nodes.vm.count=2", "nodes.vm.memory=448M")
    nodes = ["vm-1", "vm-2"]
    loads = run.metrics.filter(pl.col("node").is_not_null(), pl.col("job").is_null(), metric="write.bytes")
    found = set(loads.select("source", "node").iter_rows())
    assert {(load, node) for load in ("pool", "folder") for node in nodes} <= found
    assert loads.filter(source="folder")["value"].to_list() == [1024**2] * 2, "each writes files of its own"
    for node in nodes:
        assert layers(tmp_path)[node].count("virtio-blk") == 3


@pytest.mark.needs("zfs")
def test_a_pool_is_kept_for_a_round_and_one_volume_in_it_has_two_clients(tmp_path: Path) -> None:
    words = ['[factors]\nbs = ["4k", "64k"]\n', 'bs = "{bs}"']
    text = STUDIES[3].replace("[nodes.store]", f"{words[0]}\n[nodes.store]").replace('bs = "4k"', words[1])
    run = ran(text, tmp_path, "workload.write.fio.size=1M", "nodes.c.memory=192M")
    assert run.trials["status"].to_list() == ["done"] * 2
    assert run.trials["block"].n_unique() == 1, "both are of one round's pool"
    assert (journalled(tmp_path, "zpool.destroy"), journalled(tmp_path, "server.stop", "qemu-nbd")) == (1, 2)
    assert {"c-1", "c-2"} <= set(layers(tmp_path))


@guests
def test_redis_its_disk_and_its_client_are_on_three_machines(installed: tuple[Path, ...], tmp_path: Path) -> None:
    study = (EXTENSIONS / "three-machines.toml").read_text()
    run = ran(study, tmp_path, 'requests="200"', 'factors.appendfsync=["no"]', path=installed)
    assert "set.rate" in run.metrics["metric"].to_list()
    assert layers(tmp_path)["db"][-3:] == ["mkfs", "mount", "redis"]
