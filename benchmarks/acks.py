"""How many ACKs a reply takes, between two network namespaces: by its size, by who reads it, with offload and without.

    uv run python -m benchmarks.acks [--json FILE] [--draw]

A server of blocks answers one request after the other over TCP, a client reads them, and `storlab-agent tcp` counts at
both ends, with distributions. A cable of Ethernet, MTU 1500, joins them.

``sleeps``: the client sleeps until the reply is whole (SO_RCVLOWAT), so the kernel leaves no ACK to it. ``reads on``:
it reads whatever is there, and what it reads at once is acknowledged at once. ``offload``: cards segment and merge.
``merged``: segments that came while the client held the socket, and were merged in its backlog.

``--draw`` makes the charts of ``docs/explanation/acks-per-request.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

import altair as alt
import polars as pl

from storlab.base.programs import agent_path
from storlab.probes.tcp.output import read_output
from storlab.probes.tcp.totals import Totals, within
from storlab.report.charts.panel import titled
from storlab.report.charts.theme import COLOURS, DASHES, Chart, of, to_svg

_SERVER, _CLIENT, _PORT = "192.168.78.1", "192.168.78.2", 10809
_OFFLOADS = ("tso", "gso", "gro")
_IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_WIDTH = 640  # px
_SIZES = (4096, 16384, 65536, 131072, 262144, 524288)
_BYTES = 32 << 20  # of each size
_SHOWN = 131072
_MSS = 1448
_READERS = ("sleeps", "reads on")

_SERVE = f"""
import socket
server = socket.create_server(("{_SERVER}", {_PORT}))
print("ready", flush=True)
while True:
    with server.accept()[0] as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := peer.recv(8, socket.MSG_WAITALL):
            peer.sendall(bytes(int.from_bytes(request, "big")))
"""
_READ = f"""
import socket, sys
size, times, reader = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with socket.create_connection(("{_SERVER}", {_PORT})) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if reader == "sleeps":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    buffer = bytearray(1 << 20)
    for _ in range(times):
        peer.sendall(size.to_bytes(8, "big"))
        left = size
        while left:
            left -= peer.recv_into(buffer, min(left, len(buffer)))
"""


@dataclass(frozen=True)
class Measured:
    """Of one size: ``advance`` are ACKs by bin, lower and upper bound in bytes."""

    reader: str
    offload: bool
    size: int
    acks_per_request: float
    segments_per_request: float
    mss_per_ack: float
    merged: int  # segments that waited in the backlog and were merged there
    advance: list[tuple[int, int, int]]

    @property
    def name(self) -> str:
        return f"{self.reader}, offload" if self.offload else self.reader


def main() -> None:
    """Measure, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="less of each size")
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("--draw", action="store_true", help="make the documentation's charts")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("network namespaces and eBPF take root: run it as root")
    amount = _BYTES // 8 if chosen.quick else _BYTES
    with _namespaces() as (server, client), _serving(server):
        found = [
            _measure((server, client), reader, offload, size, max(amount // size, 8))
            for offload in (False, True)
            for reader in _READERS
            for size in _SIZES
        ]
    print(table(found))
    if chosen.json:
        figures = {"measured": [asdict(each) for each in found], "load": os.getloadavg()}
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")
    if chosen.draw:
        _IMAGES.joinpath("acks-by-size.svg").write_text(_svg(by_size(found), "ACKs of a reply"), "utf-8")
        _IMAGES.joinpath("acks-advance.svg").write_text(
            _svg(by_advance(found), "What one ACK acknowledges, replies of 128 KiB"), "utf-8"
        )


@contextmanager
def _namespaces() -> Iterator[tuple[str, str]]:
    """The server's and the client's, with a cable between them."""
    names = (f"storlab-benchmark-{os.getpid()}-server", f"storlab-benchmark-{os.getpid()}-client")
    made: list[str] = []
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.append(name)
        cable = ["ip", "link", "add", "wire", "netns", names[0], "type", "veth", "peer", "name", "wire"]
        subprocess.run([*cable, "netns", names[1]], check=True)
        for name, address in zip(names, (_SERVER, _CLIENT), strict=True):
            subprocess.run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", "wire"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "wire", "up"], check=True)
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False)


@contextmanager
def _serving(namespace: str) -> Iterator[None]:
    with subprocess.Popen(_inside(namespace, sys.executable, "-c", _SERVE), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield
        finally:
            server.kill()


def _inside(namespace: str, *argv: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *argv]


def _measure(namespaces: tuple[str, str], reader: str, offload: bool, size: int, times: int) -> Measured:
    for name in namespaces:
        words = [word for each in _OFFLOADS for word in (each, "on" if offload else "off")]
        subprocess.run(_inside(name, "/usr/sbin/ethtool", "-K", "wire", *words), check=True)
    merged = _counter(namespaces[1], "TCPBacklogCoalesce")
    watchers = [_watcher(name) for name in namespaces]
    reads = _inside(namespaces[1], sys.executable, "-c", _READ, str(size), str(times), reader)
    subprocess.run(reads, check=True)
    server, client = (_ended(each) for each in watchers)
    return Measured(
        reader=reader,
        offload=offload,
        size=size,
        acks_per_request=client.acks_sent / times,
        segments_per_request=server.segments_sent / times,
        mss_per_ack=client.received_in_mss / client.acks_sent,
        merged=_counter(namespaces[1], "TCPBacklogCoalesce") - merged,
        advance=sorted((low, high, n) for (what, low, high), n in client.acks.items() if what == "sent.bytes"),
    )


def _watcher(namespace: str) -> tuple[subprocess.Popen[bytes], list[bytes]]:
    argv = _inside(namespace, str(agent_path()), "tcp", "--endpoint", f"*:{_PORT}", "--distributions")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, [process.stdout.readline(), process.stdout.readline()]  # it has begun to count


def _ended(watcher: tuple[subprocess.Popen[bytes], list[bytes]]) -> Totals:
    process, lines = watcher
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=30)
    return within(read_output([*lines, *rest.splitlines(keepends=True)]), 0.0, 1e12).totals


def _counter(namespace: str, wanted: str) -> int:
    text = subprocess.run(
        _inside(namespace, "cat", "/proc/net/netstat"), capture_output=True, text=True, check=True
    ).stdout
    names, numbers = (line.split() for line in text.splitlines() if line.startswith("TcpExt:"))
    return int(numbers[names.index(wanted)])


def table(found: list[Measured]) -> str:
    """Lines for people."""
    lines = [f"{'':<24}{'size':>9}{'segments':>10}{'ACKs':>8}{'MSS/ACK':>9}{'merged':>9}{'p50':>9}{'p99':>9}"]
    for each in found:
        middle, tail = (_percentile(each.advance, share) / _MSS for share in (0.5, 0.99))
        lines.append(
            f"{each.name:<24}{each.size:>9}{each.segments_per_request:>10.1f}{each.acks_per_request:>8.2f}"
            f"{each.mss_per_ack:>9.2f}{each.merged:>9}{middle:>9.2f}{tail:>9.2f}"
        )
    return "\n".join(lines)


def _percentile(bins: list[tuple[int, int, int]], share: float) -> float:
    total = sum(count for _, _, count in bins)
    sums = accumulate(count for _, _, count in bins)
    return next(
        ((low + high) / 2 for (low, high, _), reached in zip(bins, sums, strict=True) if reached >= share * total), 0.0
    )


def by_size(found: list[Measured]) -> Chart:
    """ACKs of a reply over its size: a line for each reader, with offload and without."""
    names = list(dict.fromkeys(each.name for each in found))
    rows = [{"kind": each.name, "size": each.size / 1024, "acks": each.acks_per_request} for each in found]
    lines: Chart = (
        alt.Chart(pl.DataFrame(rows))
        .mark_line(point={"filled": True, "size": 50}, strokeWidth=2)
        .encode(
            x=alt.X("size:Q", title="size of the reply, KiB", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("acks:Q", title="ACKs of the client, for each reply", scale=alt.Scale(type="log")),
            color=alt.Color("kind:N", title=None, sort=names, scale=of(names, COLOURS), legend=alt.Legend(columns=4)),
            strokeDash=alt.StrokeDash("kind:N", sort=names, scale=of(names, DASHES), legend=None),
        )
        .properties(height=260)
    )
    return lines


def by_advance(found: list[Measured]) -> Chart:
    """Shares of ACKs that acknowledge at most so much, for replies of one size."""
    shown = [each for each in found if each.size == _SHOWN]
    names = [each.name for each in shown]
    rows = []
    for each in shown:
        total = sum(count for _, _, count in each.advance)
        for (_, high, _), reached in zip(each.advance, accumulate(n for _, _, n in each.advance), strict=True):
            rows.append({"kind": each.name, "mss": max(high / _MSS, 0.5), "share": 100 * reached / total})
    lines: Chart = (
        alt.Chart(pl.DataFrame(rows))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("mss:Q", title="at most so many MSS", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("share:Q", title="of all ACKs, %", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color("kind:N", title=None, sort=names, scale=of(names, COLOURS), legend=alt.Legend(columns=4)),
            strokeDash=alt.StrokeDash("kind:N", sort=names, scale=of(names, DASHES), legend=None),
        )
        .properties(height=260)
    )
    return lines


def _svg(chart: Chart, title: str) -> str:
    return titled(to_svg(chart, width=_WIDTH), title)


if __name__ == "__main__":
    main()
