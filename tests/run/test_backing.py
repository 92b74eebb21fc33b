"""Both ends of a chain: where disks are made, what is watched on each node, and what is counted underneath."""

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
from storlab.base.errors import StudyError
from storlab.nodes.kinds.local import local_node
from storlab.probes.alignment import AlignmentProbe
from storlab.probes.base import Probe
from storlab.probes.disks import StallsProbe
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.sampling import read_samples
from storlab.probes.share_requests import ShareRequestsProbe
from storlab.probes.subject import Interface, ProcessGroup, Subject, read_subject
from storlab.probes.zfs.probe import ZfsProbe
from storlab.records.run_folder import RunFolder
from storlab.run.planning.checks import place
from storlab.run.planning.design import design_of
from storlab.run.trial import measure as measuring
from storlab.run.trial.subjects import watched_groups
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


@pytest.mark.skipif("zfs" in Path("/proc/filesystems").read_text(), reason="this machine has ZFS itself")
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
    names = [layer.layer for layer in cell.layers_on("storage")]
    assert names == ["file", "loop", "mkfs", "mount", *["image-copy"] * 2] and not cell.networked("storage")


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
    assert chain is not None and [link.layer.layer for link in chain.below if link.once] == shared


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

    with opened(Laboratory(tmp_path_factory.mktemp("backing"))) as lab:
        with pytest.MonkeyPatch.context() as patch:  # not for the run of the other tests here
            patch.setattr("storlab.run.trial.trial.measure", measure)
            lab.execute(STUDY)
        yield lab.run_folder


def values(run: RunFolder, source: str) -> dict[str, float]:
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
    assert found["backing.write.bytes"] >= 2 * 8 * MIB and 1.0 <= found["write.amplification.backing"] < 1.5
    looks = read_samples(backing_folder(run))
    assert found["backing.drain"] == pytest.approx(looks[-1].t - record.nodes["host"].end)
    assert found["backing.drain"] > 0.0
    (record,) = run.records()
    disks = [disk for name in ("n-1", "n-2") for disk in record.nodes[name].disks]
    assert len(set(disks)) == 2
    assert sorted(read_subject(backing_folder(run)).disks or ()) == sorted(disks), "nodes are set up at once"
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


LOAD = 'workload.load.fio = { rw = "write", bs = "64k", size = "4M", ioengine = "psync" }\n'
DISK = '{ layer = "file", size = "32M" }, { layer = "loop" }'
SERVED = sample(__file__, "cases/served-disk.toml")


def cell(text: str) -> Cell:
    return parse_study(f'title = "made up"\n{text}'.encode(), "study.toml", lambda name: "").cells[0]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One run for all tests here."""
    with opened(Laboratory(tmp_path_factory.mktemp("shared"))) as lab:
        lab.execute(SERVED)
        yield lab


def subject(lab: Laboratory, node: str, probe: str) -> Subject:
    return read_subject(lab.run_folder.trial_folder(1) / node / f"probe-{probe}")


@pytest.mark.needs("root")
def test_who_serves_and_who_is_served_have_their_own_disks_and_the_same_server(lab: Laboratory) -> None:
    (record,) = lab.records()
    assert (record.status, record.reason) == ("done", None)
    store, client = subject(lab, "store", "stalls"), subject(lab, "client", "stalls")
    assert (store.group, store.end, store.above) == ("store", "below", ("client",))
    assert (client.group, client.end, client.above) == ("client", "load", ())
    assert store.disks != client.disks
    for name, watched in (("store", store), ("client", client)):
        assert tuple(record.nodes[name].disks) == watched.disks
    (offered,), (used,) = store.servers, client.servers
    assert (offered.dialect, offered.here, used.here) == ("nbd", True, False)
    (card,), (other,) = store.interfaces, client.interfaces
    assert offered.address == used.address and offered.address.startswith(f"{card.address}:")
    assert card == Interface(name=card.name, address=card.address, peers=(other.address,))
    assert other.peers == (card.address,)


@pytest.mark.needs("root")
def test_the_servers_program_is_watched_with_its_cgroup_where_it_runs(lab: Laboratory) -> None:
    ((name, server),) = subject(lab, "store", "processes").processes.items()
    assert (name, server.role) == ("qemu-nbd-client-remote", "server") and "storlab" in (server.cgroup or "")
    rows = lab.run_folder.metrics.filter(node="store", source="probe:processes@store")
    found = dict(rows.select("metric", "value").iter_rows())
    assert found.keys() == {f"server.{name}.cpu", f"server.{name}.memory", "servers.cpu"}
    assert found[f"server.{name}.cpu"] == found["servers.cpu"] >= 0.0 and found[f"server.{name}.memory"] > 2**20


@pytest.mark.needs("root")
def test_a_machine_with_both_ends_on_it_is_watched_once_at_the_loads(lab: Laboratory) -> None:
    machine = subject(lab, "host", "host-load")
    assert (machine.end, machine.group) == ("load", "host")
    assert machine.disks == subject(lab, "client", "stalls").disks
    (record,) = lab.records()
    assert record.probes["host-load"] == ["host"]


@pytest.mark.needs("root")
def test_each_end_has_a_source_of_its_own(lab: Laboratory) -> None:
    rows = lab.run_folder.metrics.filter(pl.col("node").is_not_null(), ~pl.col("source").str.starts_with("probe:host"))
    found = set(rows.select("node", "source").iter_rows())
    of_store = ("probe:stalls", "probe:alignment", "probe:processes", "backing")
    of_client = ("load", "probe:stalls", "probe:alignment", "storage")
    of_both = {("store", f"{name}@store") for name in of_store} | {("client", name) for name in of_client}
    assert {(node, source) for node, source in found if node in ("store", "client")} == of_both


@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", ["stalls", "host-load", "alignment", "processes"])
def test_a_plan_knows_where_probes_will_watch(lab: Laboratory, kind: str) -> None:
    """A whole machine is watched on ``host``, for the sake of any of the nodes on it."""
    (record,) = lab.records()
    study = cell(SERVED)
    expected, found = set(watched_groups(study.probes[kind], study)), set(record.probes[kind])
    assert found <= expected if kind == "host-load" else found == expected, (found, expected)


VM = 'kind = "vm", memory = "256M"'
ZVOL = '{ layer = "zpool", size = "256M" }, { layer = "zvol", size = "64M" }'
THIS_MACHINE = f'primary = "bandwidth"\nnodes.a.stack = [{DISK}]\n{LOAD}'
VIRTIO = '{ layer = "file", size = "32M" }, { layer = "virtio-blk" }'
GUEST = f'primary = "bandwidth"\nnodes.vm = {{ {VM}, stack = [{VIRTIO}] }}\n{LOAD}'
TWO_GUESTS = sample(__file__, "cases/two-guests.toml")

SHARED = f"""
primary = "bandwidth"
nodes.vm = {{ {VM}, stack = [{{ layer = "directory" }}, {{ layer = "9p" }}] }}
{LOAD}"""
OVER_SSH = f"""
primary = "bandwidth"
nodes.store = {{ kind = "KIND", stack = [{{ layer = "directory" }}] }}
nodes.client = {{ kind = "KIND", from = "store", stack = [{{ layer = "ssh-share" }}, {{ layer = "sshfs" }}] }}
{LOAD}"""


@pytest.mark.parametrize(
    ("study", "probe", "groups"),
    [
        (THIS_MACHINE, StallsProbe(), ["a"]),
        (THIS_MACHINE, HostLoadProbe(), ["a", "host"]),
        (THIS_MACHINE, ProcessesProbe(), []),
        (THIS_MACHINE, AlignmentProbe(at="below"), []),
        (GUEST, StallsProbe(), ["vm", "host"]),
        (GUEST, ProcessesProbe(), ["host"]),
        (GUEST, AlignmentProbe(), ["vm"]),
        (GUEST, AlignmentProbe(at="below"), ["host"]),
        (TWO_GUESTS, AlignmentProbe(at="each"), ["store", "vm", "host"]),
        (TWO_GUESTS, AlignmentProbe(at="below"), ["store", "host"]),
        (TWO_GUESTS, ProcessesProbe(), ["store", "host"]),
        (TWO_GUESTS, ShareRequestsProbe(), []),
        (SHARED, ShareRequestsProbe(), ["vm"]),
        (OVER_SSH.replace("KIND", "vm"), ShareRequestsProbe(), ["client"]),
        (OVER_SSH.replace("KIND", "netns"), ShareRequestsProbe(), []),
        (TWO_GUESTS, ZfsProbe(), []),
        (THIS_MACHINE.replace(DISK, ZVOL), ZfsProbe(), ["a"]),
    ],
)
def test_it_is_known_before_a_run_where_a_probe_will_watch(study: str, probe: Probe, groups: list[str]) -> None:
    assert watched_groups(probe, cell(study)) == groups
