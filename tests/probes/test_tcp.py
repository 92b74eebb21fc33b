"""Probe ``tcp``: where it watches, what it sees of a real connection, and why it could not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storlab.base.errors import ParseError
from storlab.measurements import Measurements
from storlab.nodes.kinds.local import local_node
from storlab.probes.base import ProbeContext, ProbeRecord, Window
from storlab.probes.subject import Interface, Service, Subject
from storlab.probes.tcp.output import ABOUT, PACKETS, kept_packets
from storlab.probes.tcp.probe import TcpProbe
from storlab.tools.pcap.importer import PcapImporter
from tcp.lines import connection, printed, sample

HERE = Subject(group="here")


def serving(*addresses: str) -> Subject:
    return Subject(group="here", servers=tuple(Service(dialect="nbd", address=each, here=True) for each in addresses))


def test_it_watches_what_a_node_serves_or_is_served_by_at_each_end() -> None:
    subject = serving(
        "10.213.0.2:10809", "/run/nbd.sock", "[fd00::1]:3260", "0.0.0.0:2049", "store:445", "10.213.0.2:10809"
    )
    expected = ("10.213.0.2:10809", "[fd00::1]:3260", "*:2049", "*:445")
    assert TcpProbe().endpoints(subject) == expected
    assert TcpProbe.model_validate({"ports": [3260]}).endpoints(subject) == ("*:3260",)
    probe = TcpProbe()
    assert probe.watches_at("load", {"machine", "interfaces"})
    assert probe.watches_at("below", {"machine", "interfaces"})
    assert not probe.watches_at("load", {"machine", "disks"})


def test_without_a_connection_or_distributions_the_reader_is_told_why(tmp_path: Path) -> None:
    (tmp_path / TcpProbe.output).write_bytes(b"".join(printed(sample(1), sample(2))))
    seen = TcpProbe().parse(ProbeRecord(tmp_path, Window(1.0, 2.0), HERE))
    assert seen.metrics.is_empty()
    assert seen.warnings == ("tcp: no connection was seen at the watched ports",)
    rows = [sample(at, connection(bytes_sent=10 * at)) for at in (1, 2)]
    lines = printed(*rows, distributions=False, no_distributions="this kernel has no BTF")
    (tmp_path / TcpProbe.output).write_bytes(b"".join(lines))
    seen = TcpProbe(distributions=True).parse(ProbeRecord(tmp_path, Window(1.0, 2.0), HERE))
    assert seen.warnings == ("tcp: there are no distributions of ACKs: this kernel has no BTF",)
    assert (seen.totals()["bytes.sent"], seen.histograms.height) == (10, 0)


def test_samples_of_the_phase_are_series(tmp_path: Path) -> None:
    rows = [sample(at, connection(bytes_sent=10 * at, rtt=100 * at, cwnd=10)) for at in (1, 2, 3)]
    (tmp_path / TcpProbe.output).write_bytes(b"".join(printed(*rows)))
    seen = TcpProbe().parse(ProbeRecord(tmp_path, Window(1.0, 3.0), HERE))
    of_rtt = seen.series.filter(metric="rtt").select("t", "value", "unit").rows()
    assert of_rtt == [(0.0, pytest.approx(1e-4), "s"), (1.0, pytest.approx(2e-4), "s"), (2.0, pytest.approx(3e-4), "s")]
    assert seen.facts["congestion_control"] == ["cubic"]


async def _watched(probe: TcpProbe, raw: Path, subject: Subject, load: Callable[[], None]) -> Measurements:
    async with local_node("here") as node:
        async with probe.watch(ProbeContext(node, raw, subject)):
            await asyncio.to_thread(load)
        children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
        left = [Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[:2] for child in children]
    assert [words for words in left if b"tcp" in words] == []
    return probe.parse(ProbeRecord(raw, Window(0.0, 1e9), subject))


def _loaded(server: socket.socket, enough: Callable[[], bool]) -> int:
    """Serve 100,000 bytes again and again; returns how many these were in the end."""
    sent = 0
    with socket.create_connection(server.getsockname()) as client, server.accept()[0] as peer:
        while not sent or not enough():
            client.sendall(bytes(100_000))
            sent += 100_000
            received = 0
            while received < 100_000:
                received += len(peer.recv(1 << 20))
    return sent


@pytest.mark.needs("root", "tcpdump")
def test_both_ends_of_a_connection_are_seen_to_the_byte_with_distributions_and_packets_that_were_asked_for(
    tmp_path: Path,
) -> None:
    probe, sent = TcpProbe(distributions=True, capture=20), list[int]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        loopback = {"interfaces": (Interface(name="lo", address="127.0.0.1"),)}
        subject = serving(f"{host}:{port}").model_copy(update=loopback)
        about, deadline = tmp_path / ABOUT, time.monotonic() + 30
        kept = lambda: about.exists() or time.monotonic() > deadline  # noqa: E731
        seen = asyncio.run(_watched(probe, tmp_path, subject, lambda: sent.append(_loaded(server, kept))))
    found = seen.totals()
    assert found, (seen.warnings, (tmp_path / TcpProbe.output).read_bytes()[:4000])
    once = found["bytes.sent"] - found["bytes.retransmitted"]
    assert (once, found["bytes.received"], found["connections"]) == (sent[0], sent[0], 2)
    assert (found["connections.opened"], found["connections.closed"]) == (2, 2)
    assert [each for each in seen.warnings if "sample" not in each] == []
    assert "acks.received.advance" in seen.histograms["metric"].to_list()
    assert {spec.name for spec in probe.declares()} >= set(seen.metrics["metric"])
    assert "acks.sent.advance.p50" not in {spec.name for spec in TcpProbe().declares()}
    lines = kept_packets(tmp_path, 0.0, 1e9)
    assert len(lines) == 20 and all(f"127.0.0.1.{port}" in line and "IP" in line for line in lines)
    (part,) = PcapImporter().read((tmp_path / PACKETS).read_bytes(), "packets.pcap", {})
    assert part.found.facts["packets"] == "20"
    with pytest.raises(ParseError, match="not of the measured phase"):
        kept_packets(tmp_path, 1e8, 1e9)


@pytest.mark.parametrize(
    ("about", "why"),
    [(None, "the server sent no data"), (b'{"why": "no such card"}', "no such card"), (b"[]", "sent no data")],
)
def test_packets_that_were_asked_for_and_not_kept_are_missed(tmp_path: Path, about: bytes | None, why: str) -> None:
    (tmp_path / TcpProbe.output).write_bytes(b"".join(printed(sample(1, connection()), sample(2, connection()))))
    if about is not None:
        (tmp_path / ABOUT).write_bytes(about)
    (warning,) = TcpProbe(capture=5).parse(ProbeRecord(tmp_path, Window(1.0, 2.0), HERE)).warnings
    assert warning.startswith("tcp: no packets were kept: ") and why in warning


def test_a_node_that_serves_nothing_over_tcp_is_left_alone(tmp_path: Path) -> None:
    seen = asyncio.run(_watched(TcpProbe(), tmp_path, serving("/run/nbd.sock"), lambda: None))
    assert seen.warnings == ("tcp: nothing on this node is served over TCP",)
    assert not (tmp_path / TcpProbe.output).exists()
