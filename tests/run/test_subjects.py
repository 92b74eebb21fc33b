"""What there is to watch on each node: what a plan expects, and what real nodes had, at both ends of a chain."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from laboratory import Laboratory, opened
from laboratory.samples import sample
from storlab.probes.alignment.probe import AlignmentProbe
from storlab.probes.base import Probe
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.requests.probe import ShareRequestsProbe
from storlab.probes.stalls import StallsProbe
from storlab.probes.subject import Interface, Subject, read_subject
from storlab.probes.zfs.probe import ZfsProbe
from storlab.run.trial.subjects import watched_groups
from storlab.study.cells import Cell
from storlab.study.study import parse_study

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
    assert offered.address == used.address
    assert offered.address.startswith(f"{card.address}:")
    assert card == Interface(name=card.name, address=card.address, peers=(other.address,))
    assert other.peers == (card.address,)


@pytest.mark.needs("root")
def test_the_servers_program_is_watched_with_its_cgroup_where_it_runs(lab: Laboratory) -> None:
    store = subject(lab, "store", "processes")
    assert list(store.processes) == ["qemu-nbd-client-remote"]
    assert store.processes["qemu-nbd-client-remote"].role == "server"
    assert "storlab" in (store.processes["qemu-nbd-client-remote"].cgroup or "")
    rows = lab.run_folder.metrics.filter(node="store", source="probe:processes@store")
    found = dict(rows.select("metric", "value").iter_rows())
    assert found.keys() == {"server.qemu-nbd-client-remote.cpu", "server.qemu-nbd-client-remote.memory", "servers.cpu"}
    assert found["server.qemu-nbd-client-remote.cpu"] == found["servers.cpu"] >= 0.0
    assert found["server.qemu-nbd-client-remote.memory"] > 2**20


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
    by_node = {
        node: {source for one, source in rows.select("node", "source").iter_rows() if one == node}
        for node in ("store", "client")
    }
    assert by_node["store"] == {
        f"{name}@store" for name in ("probe:stalls", "probe:alignment", "probe:processes", "backing")
    }
    assert by_node["client"] == {"load", "probe:stalls", "probe:alignment", "storage"}


@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", ["stalls", "host-load", "alignment", "processes"])
def test_a_plan_knows_where_probes_will_watch(lab: Laboratory, kind: str) -> None:
    """A whole machine is watched on ``host``, for the sake of any of the nodes on it."""
    (record,) = lab.records()
    study = cell(SERVED)
    expected = watched_groups(study.probes[kind], study)
    assert set(record.probes[kind]) <= set(expected)
    if kind != "host-load":
        assert set(record.probes[kind]) == set(expected)


VM = 'kind = "vm", memory = "256M"'
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
        (
            THIS_MACHINE.replace(DISK, '{ layer = "zpool", size = "256M" }, { layer = "zvol", size = "64M" }'),
            ZfsProbe(),
            ["a"],
        ),
    ],
)
def test_it_is_known_before_a_run_where_a_probe_will_watch(study: str, probe: Probe, groups: list[str]) -> None:
    assert watched_groups(probe, cell(study)) == groups
