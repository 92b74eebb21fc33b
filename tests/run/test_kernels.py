"""The study ``kernels``, and kernels of Debian's: a boot is a block, and each kernel boots once a round."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import polars as pl
import pytest

from storlab.errors import StudyError
from storlab.images.debian_kernel import unpack_debian_kernel
from storlab.images.recipe import OWN_SERIES, series_of
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.records.run_folder import TrialRecord
from storlab.run.executor import Outcome, run_study
from storlab.run.observer import Observer
from storlab.run.planning.metrics import narrowed
from storlab.run.planning.order import round_order
from storlab.run.setup.units import kept_for_a_round
from storlab.study.study import Study, load_study, named_studies

NVME = """
schema = 1
title = "Health of a guest's NVMe disk"
primary = "write.iops"
stack = []
[nodes.vm]
kind = "vm"
memory = "192M"
stack = [{ layer = "file", size = "256M" }, { layer = "nvme" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.w]
on = "vm"
fio = { rw = "write", bs = "64k", ioengine = "psync", size = "1M" }
[probes]
nvme = {}
folios = {}
fragmentation = {}
"""


def kernels(*settings: str, only: tuple[str, ...] = ()) -> Study:
    return narrowed(load_study(named_studies()["kernels"], settings, only))


def run(study: Study, folder: Path, rounds: int = 1) -> Outcome:
    return asyncio.run(run_study(study, folder, 1, (rounds, rounds), Observer()))


def test_cells_of_one_kernel_share_a_boot_and_follow_each_other_in_each_round() -> None:
    cells = kernels('filesystems=["ext4", "xfs", "btrfs"]').cells
    boots = {cell.number: kept_for_a_round(cell) for cell in cells}
    of_kernel = {cell.number: cell.levels["kernel"] for cell in cells}
    assert len(cells) == 18 and len(set(boots.values())) == 2
    assert len({(boots[number], of_kernel[number]) for number in boots}) == 2
    numbers = {boot: number for number, boot in enumerate(dict.fromkeys(boots.values()), start=1)}
    first = set()
    for number in range(1, 21):
        order = round_order(
            [*boots], number, 1, {cell: numbers[boot] for cell, boot in boots.items()}, dict.fromkeys(boots, 1)
        )
        kernels_in_order = [of_kernel[planned.cell] for planned in order]
        assert kernels_in_order in (["a"] * 9 + ["b"] * 9, ["b"] * 9 + ["a"] * 9)
        first.add(kernels_in_order[0])
    assert first == {"a", "b"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kernel": "debian:"}, 'nothing is no series of kernels: write "debian:6.1"'),
        ({"kernel": "debian:../x"}, "../x is no series of kernels"),
        ({"kernel": "debian:6.1", "modules": "/srv/modules"}, "modules goes with a kernel of your own"),
    ],
)
def test_what_names_no_kernel_of_debians_is_refused(keys: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Hardware(**keys)


def test_an_empty_path_is_none_so_that_a_parameter_can_leave_it_out() -> None:
    found = Hardware(kernel="", modules="")
    assert found.kernel is None and found.modules is None and series_of(f"debian:{OWN_SERIES}") == OWN_SERIES


@pytest.mark.needs("guests")
def test_a_kernel_that_is_not_unpacked_is_named_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    with pytest.raises(
        StudyError, match=r"kernel: Debian's kernel 6\.99 is not in .*; `storlab image kernel 6\.99` unpacks"
    ):
        run(kernels("a=debian:6.99"), tmp_path / "run")


@pytest.mark.needs("guests", "packages")
def test_two_kernels_of_debians_boot_once_a_round_each(tmp_path: Path) -> None:
    asyncio.run(unpack_debian_kernel("6.1"))
    small = ("memory=192M", "size=1M", "disk=512M", 'filesystems=["ext4", "xfs"]')
    outcome = run(kernels(*small, only=("load=buffered",)), tmp_path / "run")
    assert outcome.ending == "complete"
    records = list(outcome.folder.records())
    booted = {(record.levels["kernel"], record.block, record.guests["vm"]["kernel"]) for record in records}
    assert len(records) == 4 and len(booted) == 2, "two file systems in one boot of each"
    assert {(kernel, release[:4]) for kernel, _, release in booted} == {("a", "6.1."), ("b", "6.12")}
    assert {record.guests["vm"]["boot"] for record in records} == {"cold"}
    metrics = outcome.tables.frame("metrics").filter(
        pl.col("source") == "probe:folios", pl.col("metric") == "folio.size"
    )
    sizes = {(row["kernel"], row["fs"]): float(str(row["value"])) for row in _with_levels(metrics, records)}
    assert sizes["b", "xfs"] > 2 * sizes["b", "ext4"], "XFS has large folios, and ext4 has none before 6.16"


@pytest.mark.needs("guests")
def test_the_probes_of_memory_and_disks_watch_a_guest(tmp_path: Path) -> None:
    (tmp_path / "nvme.toml").write_text(NVME)
    outcome = run(load_study(tmp_path / "nvme.toml"), tmp_path / "run")
    assert outcome.ending == "complete"
    frame = outcome.tables.frame("metrics").filter(pl.col("node").is_null())
    found = {(row["source"], row["metric"]): row["value"] for row in frame.iter_rows(named=True)}
    assert 0 < found["probe:nvme", "temperature"] < 100, "QEMU's disks are as warm as a real one"
    assert found["probe:nvme", "media.errors"] == 0
    assert found["probe:folios", "cached.bytes"] >= 1 << 20
    assert 0 <= found["probe:fragmentation", "unusable.order-9"] <= 1


def _with_levels(metrics: pl.DataFrame, records: list[TrialRecord]) -> list[dict[str, object]]:
    levels = {record.trial: record.levels for record in records}
    rows = metrics.filter(pl.col("node").is_null()).iter_rows(named=True)
    return [row | levels[row["trial"]] for row in rows]
