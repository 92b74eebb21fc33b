"""Where disks are made, here or on a guest that serves them; and what lies underneath is counted until all is down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from laboratory import Laboratory, opened
from laboratory.samples import sample
from storlab.errors import StudyError
from storlab.nodes.kinds.local import local_node
from storlab.probes.sampling import read_samples
from storlab.probes.subject import ProcessGroup, Subject, read_subject
from storlab.records.run_folder import RunFolder
from storlab.run.planning.design import design_of
from storlab.run.setup.placement import place
from storlab.run.setup.units import layers_on
from storlab.run.trial import measure as measuring
from storlab.study.cells import Cell
from storlab.study.study import Study, load_study, parse_study, shipped_studies


def _place(study: Study) -> Study:
    async def look() -> Study:
        async with local_node("host") as host:
            return await place(study, host)

    return asyncio.run(look())


def _names(cell: Cell, group: str) -> list[str]:
    chain = cell.chain(group)
    assert chain is not None
    return [link.layer.layer for link in chain.links]


def _vm_backing(only: Sequence[str] = ()) -> Study:
    return load_study(shipped_studies()["vm-backing"], only=only)


@pytest.fixture
def without_zfs() -> None:
    with open("/proc/filesystems") as filesystems:  # noqa: PTH123
        if "zfs" in filesystems.read():
            pytest.skip("this machine has ZFS itself")


@pytest.mark.usefixtures("without_zfs")
def test_disks_that_cannot_be_made_here_are_made_on_a_guest_and_one_such_level_takes_all_there() -> None:
    placed = _place(_vm_backing())
    for cell in placed.cells:
        assert cell.nodes["storage"].kind == "vm"
        assert _names(cell, "vm")[-4:] == ["nbd-export", "virtio-blk", "mkfs", "mount"]
        assert _names(cell, "storage") == ["file", "virtio-blk"]
    (note,) = placed.notes
    assert note.startswith("storage: the disks are made on a virtual machine and served over NBD, since ")
    assert "zfs" in note
    """A disk that was made here, beside one that was made in a guest, would tell the places apart, not the disks."""
    placed = _place(_vm_backing(only=["backing=raw-file,zvol-clone"]))
    assert {cell.nodes["storage"].kind for cell in placed.cells} == {"vm"}


@pytest.mark.needs("root")
def test_disks_that_this_machine_can_make_are_made_here_and_used_directly_with_what_stands_on_them() -> None:
    placed = _place(_vm_backing(only=["backing=raw-file,qcow2-clone"]))
    for cell in placed.cells:
        assert cell.nodes["storage"].kind == "local"
        assert _names(cell, "storage") == ["file", "loop"], "a file becomes a disk by a loop"
        assert _names(cell, "vm")[2] in ("image-copy", "image-clone")
        assert _names(cell, "vm")[3:] == ["virtio-blk", "mkfs", "mount"], "and QEMU opens it here"
    assert placed.notes == ("storage: the disks are made on this machine, which has all that they need",)
    (cell,) = _place(_vm_backing(only=["backing=raw-file", "bs=4k"])).cells
    names = [layer.layer for layer in layers_on(cell, "storage")]
    assert names == ["file", "loop", "mkfs", "mount", *["image-copy"] * 4]
    assert not cell.networked("storage")


@pytest.mark.needs("root")
def test_a_chain_that_this_machine_cannot_end_is_refused_where_it_was_written() -> None:
    """This machine has all that the layers need; but an export is no disk of it without a crossing by the network."""
    study = b"""title = "x"
        [nodes.storage]
        kind = "vm"
        placement = "auto"
        stack = [{ layer = "file", size = "64M" }, { layer = "nbd-export" }, { layer = "virtio-blk" }]
        [workload.w]
        on = "storage"
        command = { argv = ["true"] }
    """
    found = r"line 5: nodes\.storage\.stack\[2\]: layer virtio-blk cannot be left out on this machine"
    with pytest.raises(StudyError, match=found):
        _place(parse_study(study, "study.toml", lambda name: ""))


@pytest.mark.parametrize(
    ("backing", "shared"),
    [
        ("zvol-clone", ["zpool"]),
        ("file-on-zfs", ["zpool", "zfs"]),
        ("raw-file", ["mkfs", "mount"]),
        ("qcow2-clone", ["mkfs", "mount"]),
    ],
)
def test_pools_and_directories_are_set_up_once_and_disks_for_each_guest(backing: str, shared: list[str]) -> None:
    chain = _vm_backing(only=[f"backing={backing}", "bs=4k"]).cells[0].chain("vm")
    assert chain is not None
    assert [link.layer.layer for link in chain.below if link.once] == shared


def test_the_profile_seed_is_the_published_experiment_to_the_letter() -> None:
    study = load_study(shipped_studies()["vm-backing"], ["profile=seed"])
    assert not any(claim.absent for claim in design_of(study).claims)
    sizes = set()
    for cell in study.cells:
        chain = cell.chain("vm")
        assert chain is not None and (cell.nodes["vm"].count, len(cell.loads)) == (4, 1)
        layers = {layer["layer"]: layer for layer in (link.layer.model_dump() for link in chain.links)}
        assert layers["zpool"]["dataset"] == {"compression": "off"}, "which all inherit"
        disk = layers["zvol"] if cell.levels["backing"] == "zvol-clone" else layers["image-copy"]
        assert (disk["base"]["system"], disk["base"]["size"], list(layers)[-1]) == (True, 100 * 1024**3, "root")
        if disk["layer"] == "zvol":
            settings = disk["volblocksize"], disk["properties"], disk["sparse"]
            assert settings == (4096, {"reservation": "100G"}, True), "no refreservation"
        options = cell.loads[0].workload.model_dump(exclude_defaults=True)
        sizes.add(options.pop("bs"))
        assert (cell.loads[0].name, options) == ("random-write", FALCON)
    assert sizes == {"4k", "512"}


FALCON = {
    "rw": "randwrite", "ioengine": "posixaio", "numjobs": 4, "size": "4G", "runtime": "60s", "time_based": True,
    "iodepth": 8, "end_fsync": True,
}  # fmt: skip


STUDY = sample(__file__, "cases/two-nodes-on-loops.toml")
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """One run for all tests here: the nodes' own disks are taken for those underneath, this process for their QEMUs."""
    real = measuring.measure

    async def measure(record: Any, places: Any, probes: Any, subjects: Any, session: Any, *rest: Any) -> Any:
        nodes = [name for name in subjects if name != "host"]
        disks = tuple(disk for name in nodes for disk in subjects[name].disks)
        processes = {name: ProcessGroup(role="guest", pid=os.getpid()) for name in nodes}
        host = Subject(group="host", end="below", above=tuple(nodes), disks=disks, processes=processes)
        return await real(record, places, probes, {**subjects, "host": host}, session, *rest)

    with pytest.MonkeyPatch.context() as patch, opened(Laboratory(tmp_path_factory.mktemp("backing"))) as lab:
        patch.setattr("storlab.run.trial.trial.measure", measure)
        lab.execute(STUDY)
        yield lab.run_folder


def values(run: RunFolder, source: str) -> dict[str, float]:
    """Of all nodes together."""
    rows = run.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), source=source)
    return dict(rows.select("metric", "value").iter_rows())


def backing_folder(run: RunFolder) -> Path:
    return run.trial_folder(1) / "host" / "probe-backing"


@pytest.mark.needs("root")
def test_both_ends_have_numbers_of_their_own_and_what_nodes_share_its_fairness(run: RunFolder) -> None:
    rows = run.metrics.filter(pl.col("node").is_not_null(), metric="stall.longest")
    ends = {(node, source) for node, source in rows.select("node", "source").iter_rows() if source != "load"}
    assert ends == {("n-1", "probe:stalls"), ("n-2", "probe:stalls"), ("host", "probe:stalls@host")}
    assert 0.5 <= values(run, "load")["write.bandwidth.fairness"] <= 1.0
    (record,) = run.records()
    assert values(run, "nodes") == {"start.skew": record.start_skew}


@pytest.mark.needs("root")
def test_what_waited_in_the_page_cache_is_counted_underneath_and_kept_as_it_was_read(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.status == "done", record.reason
    found = values(run, "backing@host")
    assert found["backing.write.bytes"] >= 2 * 8 * MIB
    assert 1.0 <= found["write.amplification.backing"] < 1.5
    looks = read_samples(backing_folder(run))
    assert found["backing.drain"] == pytest.approx(looks[-1].t - record.nodes["host"].end)
    assert found["backing.drain"] > 0.0
    (record,) = run.records()
    disks = [disk for name in ("n-1", "n-2") for disk in record.nodes[name].disks]
    assert len(set(disks)) == 2
    assert read_subject(backing_folder(run)).disks == tuple(disks)
    before, after = read_samples(backing_folder(run))
    for look in (before, after):
        assert [len(look.texts[f"/sys/class/block/{disk}/stat"].split()) >= 11 for disk in disks] == [True, True]


@pytest.mark.needs("root")
def test_guests_processes_are_watched_on_the_host(run: RunFolder) -> None:
    (record,) = run.records()
    assert record.probes["processes"] == ["host"]
    found = values(run, "probe:processes@host")
    assert found["guest.n-1.memory"] > MIB
    assert found["guests.cpu"] == pytest.approx(found["guest.n-1.cpu"] + found["guest.n-2.cpu"])
