"""Bonnie++ in whole studies: on a file system of its own, in a guest, and on a target that fills up."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from laboratory import Laboratory, needs_root
from laboratory.guests import EXT4, guests, needs_guests
from run.test_files import mounted
from storlab.records.derive import derive

needs_bonnie = pytest.mark.skipif(shutil.which("bonnie++") is None, reason="bonnie++ is not installed")


def metrics(lab: Laboratory) -> dict[str, float]:
    found = derive(lab.run_folder).frame("metrics").filter(pl.col("source") == "load", pl.col("node").is_null())
    return dict(found.select("metric", "value").iter_rows())


@needs_root
@needs_bonnie
def test_on_ext4_it_measures_what_was_asked_for_and_leaves_nothing(lab: Laboratory) -> None:
    load = 'bonnie = { size = "4M", per_character = "2M", files = { number = 1, max = "4k", directories = 2 } }'
    lab.execute(mounted(load))
    assert [record.status for record in lab.records()] == ["done"]
    found = metrics(lab)
    assert 1e4 < found["write.char.bandwidth"] < 1e8  # a system call for each byte: never under 500 ms
    assert 0 < found["seek.latency.max"] < found["elapsed"]
    assert 0 < found["random.delete.latency.max"] < found["elapsed"]
    (warning,) = derive(lab.run_folder).warnings()
    assert "which ended in under 500 ms" in warning
    assert found.get("read.char.cpu", 0) > 0 or "read.char" in warning, warning
    assert lab.leftovers() == []


@needs_root
@needs_bonnie
@pytest.mark.parametrize(
    ("load", "lack"),
    [
        ('{ size = "60M", fast = true }', "bonnie++ writes 60M, and"),
        ("{ size = 0, files = 20 }", "bonnie++ creates 20480 files, and"),
    ],
)
def test_a_target_that_fills_up_is_named(load: str, lack: str, lab: Laboratory) -> None:
    lab.execute(mounted(f"bonnie = {load}"))
    (record,) = lab.records()
    assert record.status == "failed"
    assert (record.reason or "").startswith(f"node host: target full: {lack}")
    assert lab.leftovers() == []


@needs_guests
def test_in_a_guest_it_reports_as_it_does_here(lab: Laboratory) -> None:
    study = guests("", count="1", stack=EXT4)
    begin = study.index("command = {")
    load = 'bonnie = { size = "2M", fast = true, seeks = 64, seekers = 2, direct = true, files = 1 }'
    lab.execute(study[:begin] + load + "\n")
    assert [(record.status, record.reason) for record in lab.records()] == [("done", None)]
    assert 0 < metrics(lab)["write.block.latency.max"] < 60
    assert lab.leftovers() == []
