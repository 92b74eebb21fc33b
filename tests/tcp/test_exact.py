"""Counts of the agent beside a capture of the same time: equal to the segment, at both ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory.wire import PORT, SERVER, Segment, Watcher, Wire, segments, wire
from storlab.probes.tcp.metrics import METRICS, ack_histograms, ack_values
from storlab.probes.tcp.output import AckHistogram
from storlab.probes.tcp.totals import Totals, within

pytestmark = pytest.mark.needs("root", "tcpdump", "ethtool", "ip")

FOREVER = 1e12

SERVE = f"""
import socket, threading
def serve(peer):
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := peer.recv(8, socket.MSG_WAITALL):
            kind, length = request[:1], int.from_bytes(request[1:], "big")
            if kind == b"r":
                peer.sendall(bytes(length))
            else:
                while length:
                    length -= len(peer.recv(min(length, 1 << 16)))
                peer.sendall(b"done")
server = socket.create_server(("{SERVER}", {PORT}), backlog=64)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"""
"""Reads and writes, as a server of blocks does them; without its format."""

ASK = f"""
import socket, sys
def connected():
    peer = socket.create_connection(("{SERVER}", {PORT}))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer
def ask(peer, kind, length):
    peer.sendall(kind + length.to_bytes(7, "big"))
    if kind == b"w":
        peer.sendall(bytes(length))
        length = 4
    while length:
        length -= len(peer.recv(min(length, 1 << 17)))
peer = connected()
print("ready", flush=True)
for line in sys.stdin:
    kind, length, times, own = line.split()
    for _ in range(int(times)):
        at = connected() if own == "own" else peer
        ask(at, kind.encode(), int(length))
        if own == "own":
            at.shutdown(socket.SHUT_WR)
            assert not at.recv(1)
            at.close()
    print("done", flush=True)
"""
"""Does as many of them as it reads, over one connection, or each over a connection of its own. That one it closes
when the server has: of a socket that is closed before, the kernel keeps no counters until the end.
"""


@pytest.fixture(scope="module")
def cable() -> Iterator[Wire]:
    with wire() as made:
        yield made


class Pair:
    """A server, and a client with one connection to it that stays."""

    def __init__(self, of: Wire) -> None:
        self._server = of.python("server", SERVE)
        self._await(self._server)
        self._client = of.python("client", ASK)
        self._await(self._client)

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stdout.readline()

    def do(self, kind: str, length: int, times: int, own: str = "one") -> None:
        assert self._client.stdin is not None
        self._client.stdin.write(f"{kind} {length} {times} {own}\n".encode())
        self._client.stdin.flush()
        self._await(self._client)

    def close(self) -> None:
        for process in (self._client, self._server):
            process.kill()
            process.communicate()


@pytest.fixture
def pair(cable: Wire) -> Iterator[Pair]:
    made = Pair(cable)
    yield made
    made.close()


def watched(
    cable: Wire, pair: Pair, tmp_path: Path, *loads: tuple[str, int, int, str], options: tuple[str, ...] = ()
) -> tuple[Totals, Totals, list[Segment]]:
    """What the server's end and the client's counted of these loads, and what went over the cable."""
    capture = tmp_path / "wire.pcap"
    time.sleep(0.3)  # what came before is acknowledged by now
    with cable.captured("client", capture):
        ends = [Watcher(cable, at, *options) for at in ("server", "client")]
        for load in loads:
            pair.do(*load)
        time.sleep(0.3)
        seen = [within(end.end(), 0.0, FOREVER) for end in ends]
    assert [said for each in seen for said in each.warnings if "sample" not in said] == []
    server, client = (each.totals for each in seen)
    return server, client, list(segments(capture.read_bytes()))


def of_server(every: list[Segment]) -> list[Segment]:
    return [each for each in every if each.source_port == PORT]


def of_client(every: list[Segment]) -> list[Segment]:
    return [each for each in every if each.destination_port == PORT]


def test_counts_of_both_ends_are_those_of_the_wire_to_the_segment(cable: Wire, pair: Pair, tmp_path: Path) -> None:
    cable.offload(False)
    loads = [("r", 131072, 50, "one"), ("w", 131072, 50, "one"), ("r", 100, 20, "one")]
    server, client, every = watched(cable, pair, tmp_path, *loads)
    for sender, receiver, own in ((server, client, of_server(every)), (client, server, of_client(every))):
        data, bare = [each for each in own if each.length], [each for each in own if each.is_bare]
        assert len(data) + len(bare) == len(own)
        assert (sender.segments_sent, sender.acks_sent) == (len(data), len(bare))
        assert (receiver.segments_received, receiver.acks_received) == (len(data), len(bare))
        assert sender.bytes_sent == sum(each.length for each in data)
        assert sender.bytes_sent - sender.bytes_retransmitted == receiver.bytes_received
        assert sender.retransmits == len(data) - len({each.sequence for each in data})
    assert client.bytes_received == 50 * 131072 + 50 * 4 + 20 * 100
    assert (client.connections, client.opened, client.closed) == (1, 0, 0)
    assert client.mss == [1448]


def test_with_offload_on_the_sender_still_counts_segments_of_the_wire(cable: Wire, pair: Pair, tmp_path: Path) -> None:
    """What a card would cut is captured whole: the segments are as many as its data fill."""
    cable.offload(True)
    server, client, every = watched(cable, pair, tmp_path, ("r", 131072, 50, "one"))
    whole = [each for each in of_server(every) if each.length]
    assert max(each.length for each in whole) > 1448
    assert server.segments_sent == sum(-(-each.length // 1448) for each in whole) > 2 * len(whole)
    assert client.acks_sent == len([each for each in of_client(every) if each.is_bare])


def test_connections_that_come_and_go_between_looks_are_counted(cable: Wire, pair: Pair, tmp_path: Path) -> None:
    cable.offload(False)
    server, client, every = watched(cable, pair, tmp_path, ("r", 20_000, 30, "own"), ("w", 20_000, 30, "own"))
    for end in (server, client):
        assert (end.connections, end.opened, end.closed) == (61, 60, 60)
    for sender, own in ((server, of_server(every)), (client, of_client(every))):
        data = [each for each in own if each.length]
        assert (sender.segments_sent, sender.bytes_sent) == (len(data), sum(each.length for each in data))
    assert client.bytes_received == server.bytes_sent - server.bytes_retransmitted
    answers = [each for each in of_server(every) if each.flags & 0x12 == 0x12]
    assert len(answers) == 60
    assert client.acks_sent == len([each for each in of_client(every) if not each.length])
    assert server.acks_sent == len([each for each in of_server(every) if not each.length]) - len(answers)


def advances(own: list[Segment], other: list[Segment]) -> list[int]:
    """Of each bare ACK of one end, how far it goes beyond all that was acknowledged before.

    In the order in which they were sent, which their own numbers tell: what two CPUs send at once may arrive in
    another order at the end that captures.
    """

    def sent(each: Segment) -> tuple[int, int, bool]:
        return beyond(each.acknowledged, other), beyond(each.sequence, own), bool(each.length)

    found, highest = [], 0
    for each in sorted(own, key=sent):
        acknowledged = beyond(each.acknowledged, other)
        if each.is_bare:
            found.append(acknowledged - highest)
        highest = acknowledged
    return found


def beyond(number: int, of: list[Segment]) -> int:
    """How far a number of 32 bits lies beyond the first of these."""
    return (number - of[0].sequence) % 2**32


def bins(totals: Totals, what: AckHistogram) -> dict[tuple[int, int], int]:
    return {(lower, upper): count for (of, lower, upper), count in totals.acks.items() if of == what}


@pytest.mark.parametrize("offload", [False, True], ids=["offload off", "offload on"])
def test_what_acks_acknowledge_is_what_the_wire_says(cable: Wire, pair: Pair, tmp_path: Path, offload: bool) -> None:
    cable.offload(offload)
    loads = [("r", 131072, 50, "one"), ("w", 131072, 50, "one"), ("r", 3000, 50, "one")]
    server, client, every = watched(cable, pair, tmp_path, *loads, options=("--distributions",))
    answers, requests = of_server(every), of_client(every)
    for sender, receiver, own, other in ((server, client, answers, requests), (client, server, requests, answers)):
        wire = advances(own, other)
        assert len(wire) > 20
        seen = bins(sender, "sent.bytes")
        assert sum(seen.values()) == len(wire)
        assert {(low, high): sum(low <= each < high for each in wire) for low, high in seen} == seen
        assert sum(bins(sender, "sent.gap").values()) == len(wire) - 1
        taken = sum(bins(receiver, "received.bytes").values())
        assert 0 < taken <= len(wire), "some were merged while they waited for a socket that was in use"
        assert sum(bins(receiver, "received.gap").values()) == taken - 1
    named = {each.metric for each in ack_values(client.acks)}
    assert named == {spec.name for spec in METRICS if spec.percentile}
    assert ack_histograms(client.acks)["count"].sum() == sum(client.acks.values())


def test_connections_of_others_are_in_no_distribution(cable: Wire, pair: Pair) -> None:
    cable.offload(False)
    ends = {each: Watcher(cable, "client", "--distributions", endpoint=each) for each in (f"*:{PORT}", "*:1")}
    pair.do("r", 131072, 5, "own")
    seen = {endpoint: within(each.end(), 0.0, FOREVER).totals.acks for endpoint, each in ends.items()}
    assert seen[f"*:{PORT}"]
    assert not seen["*:1"]
