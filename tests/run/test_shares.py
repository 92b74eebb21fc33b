"""Whole runs on shares between two guests: measured over each protocol, and what users see where one is lost."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, wait_until
from laboratory.databases import laboratory_of_databases
from laboratory.guests import BEGUN, begun, endings, kill_guest, once_begun
from laboratory.samples import sample
from storlab.records.run_folder import TrialRecord

PROTOCOLS = {
    "nfs": '[{ layer = "nfs-export" }, { layer = "nfs", give_up = "5s" }]',
    "nfs-3": '[{ layer = "nfs-export", versions = ["3"] }, { layer = "nfs", version = "3", give_up = "5s" }]',
    "smb": '[{ layer = "smb-share" }, { layer = "smb", give_up = "5s" }]',
    "sshfs": '[{ layer = "ssh-share" }, { layer = "sshfs", give_up = "5s" }]',
}
LIMIT = 5 + 90  # s; a mount of SMB waits 10 s for each few requests that it has to send
NODES = """
nodes.server = { kind = "vm", memory = "256M", keep = "run", stack = [DISK, { layer = "mkfs", type = "ext4", TRIAL },
                 { layer = "mount", TRIAL }] }
nodes.client = { kind = "vm", memory = "256M", from = "server", stack = STACK }
""".replace("TRIAL", 'keep = "trial"').replace("DISK", '{ layer = "file", size = "64M" }, { layer = "virtio-blk" }')
MEASURED = sample(__file__, "cases/measured-shares.toml")
MEASURED += NODES.replace("STACK", '["{protocol}"]')
MEASURED += "".join(f"factors.protocol.{name} = {layers}\n" for name, layers in PROTOCOLS.items())
DD = "exec dd if=/dev/zero of={target}/load bs=4k oflag=dsync"
FOREVER = f'echo "{BEGUN}" > /dev/console; {DD}'
SPACES = """
nodes.server = { kind = "netns", stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, MKFS] }
nodes.client = { kind = "netns", from = "server", stack = STACK }
""".replace("MKFS", '{ layer = "mkfs", type = "ext4" }, { layer = "mount" }')


def lost(nodes: str, protocol: str, load: str) -> str:
    """A study of a load that is to lose its share."""
    return sample(__file__, "cases/lost-share.toml", load=load) + nodes.replace("STACK", PROTOCOLS[protocol])


@pytest.fixture
def open_lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """One whose folder everybody may pass through, as sshd's user must."""
    with laboratory_of_databases(monkeypatch) as made:
        yield made


@pytest.mark.needs("root", "sshfs")
def test_two_clients_have_folders_of_their_own_on_one_share(open_lab: Laboratory) -> None:
    lab = open_lab
    load = "cd {target} && pwd && echo {node} > whose && sync && cat whose"
    lab.execute(lost(SPACES.replace("STACK", "STACK, count = 2"), "sshfs", load))
    (record,) = lab.records()
    assert (record.status, record.warnings) == ("done", []), record.reason
    said = [(lab.out / f"trials/0001/client-{n}/load/stdout").read_text().split() for n in (1, 2)]
    assert [(Path(path).name, whose) for path, whose in said] == [("client-1", "client-1"), ("client-2", "client-2")]
    assert [fact["layer"] for fact in record.facts["server"]].count("ssh-share") == 1
    assert lab.leftovers() == []


@pytest.mark.needs("root", "sshfs")
def test_a_cut_network_is_told_and_the_mount_of_a_node_that_stays_is_undone(open_lab: Laboratory) -> None:
    """A namespace is not ended with its trial, as a guest is: its mount must really be let go of."""
    lab = open_lab
    study = lost(SPACES, "sshfs", "touch {target}/begun; " + DD)
    cut: list[float] = []

    def act() -> None:
        begun = wait_until(lambda: any(lab.scratch.rglob("ssh-share/begun")), 60)
        cut.append(time.monotonic())
        assert begun
        for card in re.findall(r"veth\d+", _ip(lab, "-brief", "link")):
            _ip(lab, "link", "set", "dev", card, "down")

    thread = threading.Thread(target=act)
    thread.start()
    lab.execute(study)
    thread.join()
    (record,) = lab.records()
    into = r"\(\d+\.\d s into the load\)"
    assert re.match(rf"node client: no answer from node server \(\S+\) for [5-9]\.\d s {into}$", record.reason or "")
    assert record.warnings == []
    assert time.monotonic() - cut[0] < 5 + 20
    assert lab.leftovers() == []


@pytest.mark.needs("guests")
def test_each_protocol_is_set_up_measured_and_torn_down_on_one_server(lab: Laboratory) -> None:
    lab.execute(MEASURED)
    for record in lab.records():
        assert record.status == "done", record.reason
        assert record.warnings == [], "all could be torn down"
        served, mounted = ({fact["layer"]: fact for fact in record.facts[name]} for name in ("server", "client"))
        assert len({*served} & {"nfs-export", "smb-share", "ssh-share"}) == 1
        (mount,) = {*mounted} & {"nfs", "smb", "sshfs"}
        assert mounted[mount]["read_ahead"] == 128 * 1024
    metrics = lab.run_folder.metrics
    rates = metrics.filter(pl.col("job").is_null(), metric="create.rate", node="client")
    assert len(rates) == len(PROTOCOLS)
    assert all(rate > 0 for rate in rates["value"])


def _run(lab: Laboratory, protocol: str, action: Callable[[], object]) -> tuple[TrialRecord, float]:
    """A trial to which something happens once its load has begun: its record, and its seconds from then."""
    at: list[float] = []

    def act() -> None:
        at.append(time.monotonic())
        action()

    with once_begun(lab, ("client",), act):
        lab.execute(lost(NODES, protocol, FOREVER))
    took = time.monotonic() - at[0]
    (record,) = lab.records()
    assert record.status == "failed" and record.reason is not None
    assert record.lost_after is not None
    assert lab.leftovers() == []
    return record, took


@pytest.mark.needs("guests")  # sshfs: above; all others, without a run around them: tests/layers/test_shares.py
def test_a_cut_network_fails_the_trial_with_its_name_in_time_and_leaves_nothing(lab: Laboratory) -> None:
    # The server's port of the bridge is the first, since the client waits for what it serves.
    _, took = _run(lab, "smb", lambda: _ip(lab, "link", "set", "dev", "tap2", "down"))
    ((_, reason),) = endings(lab)
    assert re.match(r"node client: no answer from node server \(10.213.0.\d\) for [5-9]\.\d s$", reason or "")
    assert took < LIMIT + 60, "and the machines are ended, which takes a while where many others run"


@pytest.mark.needs("guests")
def test_a_server_whose_machine_dies_fails_the_trial_with_its_cause(lab: Laboratory) -> None:
    record, _ = _run(lab, "nfs", lambda: kill_guest(lab, "server"))
    assert (record.reason or "").startswith("node server"), record.reason


@pytest.mark.needs("guests")
def test_a_run_that_is_killed_with_a_mount_is_cleaned_and_nothing_is_left(lab: Laboratory) -> None:
    process = lab.start_run(lost(NODES, "nfs", FOREVER))
    try:
        wait_until(lambda: begun(lab, "client") or process.poll() is not None, 240)
        assert begun(lab, "client")
    finally:
        process.kill()
        process.wait()
    assert lab.storlab("clean", "--yes").status == 0


def _ip(lab: Laboratory, *words: str) -> str:
    argv = ["ip", "-netns", f"storlab-{lab.identity}", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


FULL = sample(__file__, "cases/full-share.toml")
FULL += NODES.replace("STACK", '["{crossing}"]').replace("64M", "20M")


@pytest.mark.needs("guests")
def test_a_load_that_syncs_nothing_fails_where_the_server_has_no_room_for_what_it_wrote(lab: Laboratory) -> None:
    """All of it is in the client's cache when the load ends, and it ends well."""
    lab.execute(FULL)
    reasons = {record.levels["crossing"]: (record.status, record.reason) for record in lab.records()}
    lost = "what the load left in its cache could not be written to"
    assert re.fullmatch(
        rf"node client: {lost} /dev/nbd\d: Input/output error \(what server serves is full\)", reasons["disk"][1] or ""
    ), reasons
    assert re.fullmatch(
        rf"node client: target full: {lost} \S+ \(what server serves is full\)", reasons["share"][1] or ""
    ), reasons
    assert {status for status, _ in reasons.values()} == {"failed"}
