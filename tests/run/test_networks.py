"""The network among nodes takes the shape that a study asks for and has its own again after; and TCP in runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from laboratory import Laboratory, ended, in_a_loop, kill, opened, wait_until
from laboratory.samples import sample
from laboratory.wire import segments
from storlab.nodes.demands import Demands
from storlab.nodes.kinds.local import NetnsKind
from storlab.nodes.network import CARD
from storlab.nodes.node import Node
from storlab.nodes.shaping.apply import SHAPING_UNDOES, Port, shape_interface, shape_tcp
from storlab.nodes.shaping.keys import Network, Tcp
from storlab.nodes.undo import Entry
from storlab.records.run_folder import TrialRecord
from storlab.report.language.say import say
from storlab.run.beginning import new_run_id
from storlab.run.recovery.journal import Journal
from storlab.run.session import open_session

HEAD = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }
probes = {}
"""
CONNECTED = """
nodes.server = { kind = "netns", stack = [{ layer = "file", size = "64M" }] }
nodes.client = { kind = "netns", from = "server", stack = [{ layer = "nbd-export" }, { layer = "connect" }], TCP }
""".replace("TCP", 'tcp = { congestion_control = "reno", sack = "{shape.sack}" }')
READ = """
workload.load.command.argv = ["qemu-img", "bench", "-f", "raw", "-c", "8", "-t", "none", "{target}"]
"""
NAMESPACES = CONNECTED + READ
GUESTS = (
    """
nodes.server = { kind = "vm", keep = "run", memory = "256M", tcp = { sack = "{shape.sack}" }, stack = [DISK] }
nodes.client = { kind = "vm", memory = "256M", from = "server", tcp = { TCP }, stack = [NBD] }
workload.load.command.argv = ["dd", "if={target}", "of=/dev/null", "bs=64k", "count=50", "iflag=direct"]
""".replace("DISK", '{ layer = "file", size = "64M" }, { layer = "virtio-blk" }')
    .replace("NBD", '{ layer = "nbd-export" }, { layer = "nbd" }')
    .replace("TCP", 'sack = "{shape.sack}", recovery = "{shape.recovery}"')
)


def facts(record: TrialRecord, node: str, layer: str) -> Mapping[str, Any]:
    (found,) = (each for each in record.facts[node] if each["layer"] == layer)
    return found


def by_shape(lab: Laboratory) -> dict[str, TrialRecord]:
    records = {record.levels["shape"]: record for record in lab.records()}
    assert {name: (record.status, record.reason) for name, record in records.items()} == dict.fromkeys(
        records, ("done", None)
    )
    return records


@pytest.mark.needs("root")
def test_cards_of_namespaces_change_with_the_cell_while_their_nodes_stay(lab: Laboratory) -> None:
    shape = """
factors.shape.wide = { mtu = 9000, bandwidth = "unlimited", sack = true }
factors.shape.narrow = { mtu = 1500, bandwidth = "200Mbit", sack = false }
network = { mtu = "{shape.mtu}", bandwidth = "{shape.bandwidth}", offload = false }
"""
    lab.execute(HEAD + shape + NAMESPACES)
    records = by_shape(lab)
    wide, narrow = (facts(records[name], "client", "network") for name in ("wide", "narrow"))
    assert (wide["mtu"], wide["port_mtu"], wide["queues"]) == (9000, 9000, [])
    assert (narrow["mtu"], narrow["port_mtu"]) == (1500, 1500)
    assert [(queue["kind"], queue["bandwidth"]) for queue in narrow["queues"]] == [("tbf", 200_000_000)]
    assert not any(wide["offload"].values())
    sack = {name: facts(record, "client", "tcp")["sack"] for name, record in records.items()}
    assert sack == {"wide": "1", "narrow": "0"}
    assert facts(records["wide"], "client", "tcp")["congestion_control"] == "reno"
    assert facts(records["wide"], "client", "network")["peers"]["server"]["round_trip"]["min"] < 0.1


@pytest.mark.needs("root")
def test_a_kernel_without_netem_supports_no_delay_and_says_so(lab: Laboratory) -> None:
    if _has_netem():
        pytest.skip("this machine's kernel has netem")
    shape = """
factors.shape.near = { delay = "0ms", sack = true }
factors.shape.far = { delay = "5ms", sack = true }
network.delay = "{shape.delay}"
"""
    lab.execute(HEAD + shape + NAMESPACES)
    plan = lab.run_folder.manifest.plan
    assert plan is not None
    reasons = {cell.cell: cell.unsupported for cell in plan.cells}
    assert reasons[1] == []
    assert any("has no netem" in reason for reason in reasons[2]), reasons
    assert {record.levels["shape"]: record.status for record in lab.records()} == {"near": "done", "far": "unsupported"}


@pytest.mark.needs("root")
@pytest.mark.parametrize(("end", "other"), [("client", "server"), ("server", "client")])
def test_an_mtu_made_smaller_on_one_side_is_named_before_anything_hangs(lab: Laboratory, end: str, other: str) -> None:
    nodes = CONNECTED.replace('"{shape.sack}"', "true")
    shrink = f"nsenter --net=/run/netns/storlab-$STORLAB_RUN-{end} ip link set dev storlab0 mtu 1500"
    load = f"""workload.load.command.argv = ["sh", "-c", '{shrink}']\n"""
    head = HEAD.replace("min = 1, max = 1", "min = 2, max = 2")
    lab.execute(f"{head}\nnetwork.mtu = 4000\n{nodes}{load}", unconfined=True)
    first, second = lab.records()
    assert (first.status, first.reason) == ("done", None)
    less = "the MTU of storlab0"
    assert second.reason in (  # some kernels take in what is larger than they send
        f"node {end}: packets of 4000 bytes do not reach node {other}: {less} here is 1500",
        f"node {other}: packets of 4000 bytes do not reach node {end}: {less} there is 1500",
    )


@pytest.mark.needs("guests")
def test_factors_of_the_network_change_what_guests_say_of_it(lab: Laboratory) -> None:
    shape = """
factors.shape.near = { mtu = 1500, delay = "0ms", jitter = "0ms", loss = 0, bandwidth = "unlimited", NEAR }
factors.shape.far = { mtu = 9000, delay = "20ms", jitter = "5ms", loss = "0.5%", bandwidth = "50Mbit", FAR }
""".replace("NEAR", "offload = true, sack = true, recovery = 1").replace(
        "FAR", "offload = false, sack = false, recovery = 0"
    )
    keys = ("mtu", "delay", "jitter", "loss", "bandwidth", "offload")
    shape += "".join(f'network.{key} = "{{shape.{key}}}"\n' for key in keys)
    lab.execute(HEAD + shape + GUESTS)
    records = by_shape(lab)
    for node in ("server", "client"):
        near, far = (facts(records[name], node, "network") for name in ("near", "far"))
        assert (near["mtu"], near["port_mtu"], near["queues"]) == (1500, 1500, [])
        assert near["offload"] == {"tso": True, "gso": True, "gro": True}
        assert (far["mtu"], far["port_mtu"]) == (9000, 9000)
        assert far["offload"] == {"tso": False, "gso": False, "gro": False}
        netem, tbf = far["queues"]
        assert [netem[key] for key in ("kind", "delay", "jitter", "loss")] == ["netem", 0.02, 0.005, 0.005]
        assert (tbf["kind"], tbf["bandwidth"]) == ("tbf", 50_000_000)
        assert [facts(records[name], node, "tcp")["sack"] for name in ("near", "far")] == ["1", "0"]
    assert [facts(records[name], "client", "tcp")["recovery"] for name in ("near", "far")] == ["1", "0"]
    near, far = (facts(records[name], "client", "network")["peers"]["server"] for name in ("near", "far"))
    assert near["round_trip"]["min"] < 0.04
    assert far["round_trip"]["min"] >= 0.03, "20 ms less at most 5 ms, both ways"
    assert (near["mss"], far["mss"]) == ([1448], [8948])


@pytest.mark.needs("root")
def test_a_shape_that_a_killed_run_left_is_undone_by_clean(lab: Laboratory) -> None:
    shape = """
factors.shape.narrow = { sack = false }
network = { mtu = 1400, bandwidth = "100Mbit" }
"""
    forever = 'workload.load.command.argv = ["sleep", "3600"]\n'
    process = lab.start_run(HEAD + shape + CONNECTED + forever)
    assert wait_until(lambda: process.poll() is not None or lab.sleeps(), 60)
    kill(process)
    assert ended(process).status == -9
    result = lab.storlab("clean", lab.out)
    assert result.status == 0, str(result)
    for said in ("gave the interface storlab0 of client its shape back", "gave TCP of client its settings back"):
        assert said in result.stdout, str(result)


@pytest.mark.needs("root")
@in_a_loop
async def test_a_shape_is_undone_once_and_only_where_it_is(folder: Path) -> None:
    """By the journal's arguments alone, and twice: the second time there is nothing to do."""
    done: list[Entry] = []

    async def register(*entries: Entry) -> None:
        done.extend(entries)

    async with open_session(new_run_id()) as session:
        with Journal(folder / "journal.jsonl") as journal:
            session.begin(journal, str(folder))
            node = await session.open("node", "nodes", NetnsKind(), Demands(network=True), folder)
            assert node.address is not None
            try:
                card = session.network.card_of(node.address)
                assert card is not None
                port = Port(session.host, session.network.name, card, register)
                asked = Network.model_validate({"mtu": 4000, "bandwidth": "1Gbit", "offload": False})
                own = await _state(node)
                await shape_interface(node, CARD, port, asked, register)
                tcp = Tcp.model_validate({"sack": False, "congestion_control": "reno"})
                await shape_tcp(node, CARD, tcp, register)
                shaped = await _state(node)
                table = {undo.name: undo for undo in SHAPING_UNDOES}
                for name, arguments in done:
                    table[name].check(arguments, session.run, noted=True)
                this_machine = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
                for name, arguments in done:
                    if name != "network.restore-port":  # on this machine itself is no card of Storlab's
                        assert await table[name].function(session.host, **arguments) is None
                on = {"network.restore-port": session.host}
                first = [await table[name].function(on.get(name, node), **args) for name, args in reversed(done)]
                again = [await table[name].function(on.get(name, node), **args) for name, args in reversed(done)]
                assert all(first), first
                assert again == [None] * len(done)
                assert shaped != own == await _state(node)
                assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == this_machine
            finally:
                await session.host.run(["ip", "netns", "delete", node.identity.address], check=False)
                await session.host.run(["ip", "netns", "delete", session.network.name], check=False)


async def _state(node: Node) -> list[str]:
    show = ["ip -j link show dev storlab0", "tc -j qdisc show dev storlab0", "ethtool -k storlab0 | grep offload"]
    sysctls = "cat /proc/sys/net/ipv4/tcp_sack /proc/sys/net/ipv4/tcp_congestion_control"
    return [await node.output("sh", "-c", each) for each in [*show, sysctls]]


def _has_netem() -> bool:
    words = ["unshare", "--net", "--", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


READS, WRITES = 32, 16
BETWEEN_GUESTS = sample(__file__, "cases/tcp-between-guests.toml")


def metrics(lab: Laboratory, source: str) -> dict[str, float]:
    rows = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("node").is_null(), source=source)
    return dict(rows.select("metric", "value").iter_rows())


@pytest.fixture(scope="module")
def between_guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One run for the tests of both ends."""
    with opened(Laboratory(tmp_path_factory.mktemp("tcp"))) as lab:
        summary = lab.execute(BETWEEN_GUESTS, unconfined=True).summary
        (record,) = lab.records()
        assert (record.status, record.reason) == ("done", None)
        assert [warning for warning in summary.warnings if "tcp" in say(warning)] == []
        yield lab


@pytest.mark.needs("guests")
def test_counts_of_both_guests_are_those_of_a_capture_to_the_segment(between_guests: Laboratory) -> None:
    lab = between_guests
    client, store = metrics(lab, "probe:tcp"), metrics(lab, "probe:tcp@store")
    every = list(segments((lab.out / "trials/0001/client/read/wire.pcap").read_bytes()))
    asked = [each for each in every if each.destination_port == 10809]
    answered = [each for each in every if each.source_port == 10809]
    for sender, receiver, own in ((client, store, asked), (store, client, answered)):
        data, bare = [each for each in own if each.length], [each for each in own if each.is_bare]
        assert len(data) + len(bare) == len(own)
        assert (sender["segments.sent"], sender["acks.sent"]) == (len(data), len(bare))
        assert (receiver["segments.received"], receiver["acks.received"]) == (len(data), len(bare))
        assert sender["bytes.sent"] == sum(each.length for each in data)
    assert client["bytes.received"] >= READS * 128 * 1024


@pytest.mark.needs("guests")
def test_acks_are_of_requests_of_the_disk_and_single_ones_as_many_as_were_sent(between_guests: Laboratory) -> None:
    client, store = metrics(between_guests, "probe:tcp"), metrics(between_guests, "probe:tcp@store")
    assert client["requests"] >= READS + WRITES
    assert client["acks.per-request"] == (client["acks.sent"] + client["acks.received"]) / client["requests"]
    assert client["acks.sent.mss"] == pytest.approx(client["bytes.received"] / client["acks.sent"] / client["mss"])
    assert store["acks.received.mss"] == pytest.approx(client["acks.sent.mss"], rel=0.05)
    assert 2 < client["acks.sent.mss"] < 90
    sent = client["segments.sent"] + store["segments.sent"]
    assert client["segments.per-request"] == sent / client["requests"]
    assert "segments.per-request" not in store
    assert client["rtt"] > 0
    rows = pl.read_parquet(between_guests.out / "tables" / "histograms.parquet")
    advances = rows.filter(source="probe:tcp", metric="acks.sent.advance")["count"].sum()
    assert advances == pytest.approx(client["acks.sent"], abs=2), "the first may only say where to begin"
    assert client["acks.sent.advance.p50"] > 1448
    assert client["acks.sent.gap.p50"] > 0


NAGLE = sample(__file__, "cases/nagle.toml")


def said(lab: Laboratory, trial: int) -> int:
    (path,) = (lab.out / "trials" / f"{trial:04}").rglob("reads/stdout")
    return int(path.read_text().removeprefix("delayed "))


@pytest.mark.needs("guests")
def test_nagles_algorithm_on_the_server_waits_for_acks_that_the_client_delays(lab: Laboratory) -> None:
    """In 50 reads of 8 KiB over jumbo frames: data and header are less than a segment each."""
    lab.succeed(NAGLE, trials=2)
    delayed = {record.levels["nagle"]: said(lab, record.trial) for record in lab.records()}
    assert delayed["true"] >= 25, delayed
    assert delayed["false"] <= 3, delayed
