"""Every preset runs, once, with sizes that take seconds; and every study takes a real disk by the same key."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import storlab
from laboratory.devices import Device, new_device, sh
from laboratory.guests import own_kernel
from laboratory.trust import trusting
from storlab.analysis.summary import from_json
from storlab.base.errors import StudyError
from storlab.cli.reporting import report_input
from storlab.findings import Reported
from storlab.images.image import find_image
from storlab.report.language.say import say
from storlab.report.model.chapters import steady_tables
from storlab.run.executor import Outcome, run_study
from storlab.run.observer import Observer
from storlab.study.study import load_study, named_studies, preset_studies
from study.program import Ran, call, program


@dataclass(frozen=True)
class Preset:
    """How it is made small, the metrics that its questions are about, and what it needs."""

    settings: tuple[str, ...]
    metrics: set[str]
    only: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


_LAY = """["--name=job", "--filename_format=file$jobnum", "--ioengine=psync", "--bs=128k", "--rw=write", "--thread=1",
"--directory={target}"]"""  # in pieces that fit into small files
_CACHED = ("arc_cached_clone-sync-128k-64", "dbuf_cached-sync-64k-64")
PRESETS = {
    "boot-storm": Preset(
        ("nodes.vm.count=2", "written=4M", "read=1M"), {"read.amplification.backing", "read.bandwidth"},
        ("image=clone,clone-cached",), ("guests",),
    ),
    "large-folios": Preset(
        ("size=1M", "runtime=500ms", "memory=192M"), {"write.bandwidth", "bandwidth", "latency.p99", "cpu.system"},
        ("fs=ext4", "load=write"),
    ),
    "io-engines": Preset(("size=1M", "runtime=500ms"), {"iops", "iops.per-busy-core"}, (), ("root",)),
    "discard": Preset(("files=30", "space=512M"), {"elapsed", "delete.syncfs.time"}, ("fs=xfs",), ("root",)),
    "ssd-cache-cliff": Preset(("size=4M",), {"write.bandwidth"}, (), ("root",)),
    "virtual-disk-options": Preset(
        ("size=1M", "runtime=500ms"), {"iops"}, ("mode=none-native,writeback-threads", "disk=scsi"), ("guests",),
    ),
    "container-layers": Preset(("files=30", "disk=512M"), {"elapsed", "create.rate"}, ("fs=ext4,btrfs",), ("root",)),
    "snia-pts": Preset(("runtime=500ms", 'blocks=["4k"]', "mixes=[100, 0]"), {"iops"}),
    "backup": Preset(
        ("image=4M", "files=60", "disk=512M"), {"write.bandwidth", "read.bandwidth", "write.amplification"},
        ("fs=ext4,xfs",), ("root",),
    ),
    "database-log": Preset(("data=8M", "log=1M", "runtime=1s"), {"write.iops", "sync.latency.p99"}),
    "mail": Preset(
        ("messages=20", "appended=64k", "disk=512M"),
        {"create.rate", "delete.rate", "write.iops", "write.amplification"}, ("fs=ext4,btrfs",), ("root",),
    ),
    "media-streaming": Preset(("film=1M", "runtime=1s"), {"latency.p99"}, ("numjobs=1,4",)),
    "regression": Preset(("size=1",), {"elapsed"}),
    "zfs-async-dio": Preset(("size=4M", "runtime=500ms"), {"read.iops", "write.iops", "read.amplification"}),
    "zfs-versions": Preset(("size=1M", "runtime=500ms"), {"bandwidth"}),
    "zfs-perf": Preset(
        ("runtime=300ms", "size=1M", "cached=128k", f"lay={_LAY}", "disk=512M"), {"bandwidth", "zil.commits"},
        ("layout=raidz1", f"test={','.join(f'sequential_reads_{each}' for each in _CACHED)}"), ("zfs",),
    ),
}  # fmt: skip
UNCONFINED = {"zfs-perf"}
"""What prepares its pool by commands."""
OWN_ZFS = {"zfs-async-dio": "/srv/zfs-async-dio", "zfs-versions": "/srv/zfs-new"}
"""What takes builds of ZFS, each of which takes 8 minutes, is only planned: ``tests/study/test_zfs.py``."""
BY_THEMSELVES = {"large-folios", "snia-pts", *OWN_ZFS}
"""What takes a device, kernels or builds has a test of its own."""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def run(preset: str, folder: Path, *more: str, rounds: tuple[int, int] = (1, 1)) -> Outcome:
    """One round, without a report, which takes longer than the load. ``more``: further ``--set``."""
    study = load_study(preset_studies()[preset], [*PRESETS[preset].settings, *more], PRESETS[preset].only)
    permissions = trusting(study, unconfined=preset in UNCONFINED)
    return asyncio.run(run_study(study, folder, 1, rounds, Observer(), permissions))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A loop device with a file system on it, which is in nobody's way."""
    with new_device(tmp_path / "disk.img", 64 * 1024**2) as device:
        sh("mkfs.ext4", "-q", device.path)
        yield device.path


def test_every_preset_is_run_by_a_test_and_says_so_in_one_line() -> None:
    assert set(preset_studies()) == set(PRESETS)
    for path in preset_studies().values():
        study = load_study(path)
        assert study.notes == ()
        assert len(study.model.title) <= 90
        first, *_ = study.text.splitlines()
        assert first.startswith("# ")
        assert f"#   storlab run {path.stem}" in study.text


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(name, marks=pytest.mark.needs(*each.needs))
        for name, each in PRESETS.items()
        if name not in BY_THEMSELVES
    ],
)
def test_a_preset_runs_and_has_every_metric_that_it_asks_about(preset: str, tmp_path: Path) -> None:
    outcome = run(preset, tmp_path / "run")
    assert [record.reason for record in outcome.tables.records if record.status != "done"] == []
    assert outcome.ending == "complete"
    assert set(outcome.tables.frame("metrics")["metric"]) >= PRESETS[preset].metrics


@pytest.mark.needs("zfs")
def test_reads_come_from_the_disks_of_whoever_has_the_pool_and_not_from_the_arc(tmp_path: Path) -> None:
    settings = ("runtime=1s", "size=1M", "disk=512M", 'places=["dataset", "nfs"]')
    only = ("layout=stripe", "test=random_reads-sync-8k-16")
    study = load_study(preset_studies()["zfs-perf"], settings, only)
    outcome = asyncio.run(run_study(study, tmp_path / "run", 1, (1, 1), Observer(), trusting(study)))
    done = {record.levels["place"]: record for record in outcome.tables.records}
    assert [(record.status, record.reason, record.warnings) for record in done.values()] == [("done", None, [])] * 2
    metrics = outcome.folder.metrics.filter(pl.col("job").is_null())
    misses = {metric["trial"]: metric["value"] for metric in metrics.filter(metric="arc.misses").to_dicts()}
    assert min(misses.values()) > 0 and len(misses) == 2, misses
    amplified = metrics.filter(metric="read.amplification").to_dicts()
    assert {each["trial"] for each in amplified} == {done["dataset"].trial}, "a client over NFS has no disk to read"
    assert min(each["value"] for each in amplified) > 0, amplified


@pytest.mark.needs("root")
def test_snia_pts_purges_a_device_that_is_named_twice_and_stops_at_steady_state(disk: str, tmp_path: Path) -> None:
    named = f'device="{disk}"'
    with pytest.raises(StudyError, match="purge destroys all that is on"):
        run("snia-pts", tmp_path / "refused", named)
    assert "ext4" in sh("wipefs", "--no-act", disk), "what is refused is not touched"
    outcome = run("snia-pts", tmp_path / "run", named, f'stack.0.wipe="{disk}"', rounds=(5, 9))
    assert outcome.ending == "complete", outcome
    assert "ext4" not in sh("wipefs", "--no-act", disk)
    windows = outcome.summary.steady
    assert [(window.metric, window.last) for window in windows] == [("iops", outcome.summary.rounds_done)] * 2
    steady = all(window.steady for window in windows)
    assert steady or outcome.summary.rounds_done == 9
    assert ("2 points of iops in steady state" in say(outcome.summary.stopped or Reported(""))) is steady
    facts = [record.facts for record in outcome.folder.records()]
    assert len(facts) == 2 * outcome.summary.rounds_done
    (table,) = steady_tables(report_input(outcome.folder, outcome.tables, outcome.summary).summary)
    assert table.columns[-4:] == ("mean", "range", "slope", "steady")


@pytest.mark.needs("guests")
def test_large_folios_boots_both_kernels_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StudyError, match="there is no kernel at /srv/kernel-b/bzImage"):
        run("large-folios", tmp_path / "refused")
    kernel, modules = own_kernel(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    named = [f'{name}="{kernel}"' for name in "ab"] + [f'{name}_modules="{modules}"' for name in "ab"]
    outcome = run("large-folios", tmp_path / "run", *named)
    assert outcome.ending == "complete"
    assert set(outcome.tables.frame("metrics")["metric"]) >= PRESETS["large-folios"].metrics
    guests, release = [record.guests["vm"] for record in outcome.folder.records()], find_image().release
    assert len(guests) == 2 and {guest["kernel"] for guest in guests} == {release}
    assert all(guest["image"].startswith(f"own-{release}-") for guest in guests)
    parts = (tmp_path / "cache" / "storlab" / "images" / "parts").glob("own-*")
    assert [path.name for path in parts if not path.is_symlink()] != []


@pytest.mark.needs("root")
@pytest.mark.parametrize(("preset", "tree"), OWN_ZFS.items())
def test_a_preset_for_builds_of_zfs_is_refused_without_them(preset: str, tree: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=f"zfs_tree: {tree} is no source tree of OpenZFS"):
        run(preset, tmp_path / "refused")


def test_a_sweep_of_queue_depths_has_points_and_no_verdicts(tmp_path: Path) -> None:
    small = ("depths=[1,2,4]", "jobs=[1]", "size=4M", "runtime=0.2s", "ioengine=psync", f"stack.0.path={tmp_path}")
    words = [each for setting in small for each in ("--set", setting)]
    ran = program("run", "queue-depth", *words, "--rounds", "2", "--out", str(tmp_path / "run"), timeout=300)
    assert ran.returncode == 0, ran.stderr
    summary = from_json((tmp_path / "run" / "summary.json").read_bytes())
    assert summary.comparisons == ()
    assert [step.number for line in summary.sweeps[0].lines for step in line.steps] == [1, 2, 4]
    (objective,) = summary.objectives
    assert say(objective.reason).startswith("Too few rounds")
    plot = storlab.open_run(tmp_path / "run").plot
    assert plot.cdf().to_dict()["data"] and plot.histogram().to_dict()["layer"]


SHARED = {"shared-folders", "shared-folders-network", "shared-folder-options", "boot-storm"}
"""Studies of folders, which no disk can take the place of."""
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "device.toml")
EARLIER = {
    "kernels": r"signature of ext4|Debian's kernel \S+ is not in",  # depends on what was unpacked
    "large-folios": "there is no kernel at",
    "snia-pts": "purge destroys all that is on",
    "zfs-async-dio": "is no source tree of OpenZFS",
    "zfs-versions": "is no source tree of OpenZFS",
}


@pytest.fixture
def large_disk(tmp_path: Path) -> Iterator[Device]:
    with new_device(tmp_path / "disk", 80 * 1024**3) as made:
        yield made


def plan(name: str, *sets: str) -> Ran:
    return call("plan", name, *(word for each in sets for word in ("--set", each)))


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", sorted(named_studies()))
def test_every_study_that_ships_takes_a_disk_by_the_same_key_or_says_what_to_write(
    name: str, large_disk: Device
) -> None:
    named = f"disk={large_disk.path}"
    if name in SHARED:
        assert f"--set {named}: no stack of this study begins with a disk" in plan(name, named).message
        return
    declared = [each for cell in load_study(named_studies()[name], [named]).cells for each in cell.declared]
    assert {layer.claims() for each in declared for layer in each.layers} - {None} == {large_disk.path}
    assert not {each.layers[0].layer for each in declared if each.source == "host"} & {"file", "loop"}
    sh("mkfs.ext4", "-q", large_disk.path)
    assert re.search(EARLIER.get(name, "signature of ext4"), plan(name, named).message)


@pytest.mark.needs("root")
def test_a_disk_with_data_is_refused_until_it_is_named_again_and_one_in_use_always(large_disk: Device) -> None:
    named, again = f"disk={large_disk.path}", f"wipe={large_disk.path}"
    assert plan("quick", named).status == 0
    assert "write disk =" in plan("quick", again).message
    assert "must be the path of a device" in plan("quick", "disk=nvme0n1").message
    sh("mkfs.ext4", "-q", large_disk.path)
    assert (
        f'signature of ext4: its data would be lost. Write wipe = "{large_disk.path}" as well'
        in plan("quick", named).message
    )
    assert "write the same path twice" in plan("quick", named, "wipe=/dev/null").message
    assert [plan(each, named, again).status for each in ("quick", EXAMPLE)] == [0, 0]
    sh("mount", "--mkdir", large_disk.path, f"{large_disk.image}-here")
    try:
        assert "is mounted" in plan("quick", named, again).message
    finally:
        sh("umount", large_disk.path)


@pytest.mark.parametrize(("value", "found"), [("2G", (None, "2G")), ("/dev/sdx", ("/dev/sdx", "1G"))])
def test_a_size_is_that_of_the_file_where_the_parameter_has_the_name_of_the_key(value: str, found: object) -> None:
    model = load_study(named_studies()["mail"], [f"disk={value}"]).model
    assert (model.disk, model.parameters["disk"]) == found


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("name", "cells", "load"), [("alignment", 8, "nrfiles=1000000"), ("database-variability", 4, "runtime=43200.0")]
)
def test_the_profile_seed_is_planned_on_a_disk_as_it_was_published(
    name: str, cells: int, load: str, large_disk: Device
) -> None:
    study = load_study(named_studies()[name], ["profile=seed"])
    assert load in repr(study.cells[0].loads[0].workload)
    planned = plan(name, f"disk={large_disk.path}", "profile=seed")
    assert (planned.status, planned.message) == (0, ""), "a loop device of 80G, sparse, has room for it"
    assert f"{cells} cells" in planned.output
