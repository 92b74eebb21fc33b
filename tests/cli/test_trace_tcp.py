"""``storlab trace --tcp``: connections of this machine, around a command, and mistakes in what is asked."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from laboratory import COMMAND, needs_root
from storlab.cli.trace.tcp_view import TcpView
from storlab.tcp.agent_output import decode
from storlab.tcp.follow import Follower
from tcp.lines import connection, printed, sample

LOAD = """
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    with socket.create_connection(("127.0.0.1", {port})) as client, server.accept()[0] as peer:
        client.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(peer.recv(left))
raise SystemExit(7)
"""


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "trace", *arguments], capture_output=True, text=True, timeout=120, check=False)


@needs_root
def test_connections_of_a_command_are_counted_and_its_status_is_passed_on() -> None:
    port = "17811"
    ended = trace("--tcp", "--port", port, "--json", "--", sys.executable, "-c", LOAD.format(port=port))
    assert ended.returncode == 7, ended.stderr
    seen = json.loads(ended.stdout)
    found = seen["metrics"]
    assert (found["connections"], found["connections.opened"], found["connections.closed"]) == (2, 2, 2)
    assert (found["bytes.sent"] - found["bytes.retransmitted"], found["bytes.received"]) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tcp", "--disk", "sda"], "--disk is of block I/O"),
        (["--tcp", "--events"], "--events is of block I/O"),
        (["--port", "1"], "--port is of connections: it needs --tcp"),
        (["--host", "10.0.0.1"], "--host is of connections: it needs --tcp"),
        (["--tcp", "--port", "70000"], "--port 70000: a port is a number from 1 to 65535"),
        (["--tcp", "--host", "store"], "--host: 'store' does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], message: str) -> None:
    ended = trace(*arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def drawn(width: int, connections: int = 3) -> list[str]:
    seen = Follower()
    rows = [
        connection(n, bytes_sent=9**9, segs_out=9**6, data_segs_out=9**5, rtt=99999, cwnd=999)
        for n in range(connections)
    ]
    for line in printed(sample(1), sample(5, *rows)):
        seen.add(decode(line))
    out = io.StringIO()
    Console(file=out, width=width, height=24, color_system=None, highlight=False).print(TcpView(seen))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 87, 88, 100, 119, 120, 140, 200])
def test_no_number_is_cut_and_no_line_is_too_long(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line]
    assert any("369 MiB" in line and "100 ms" in line for line in lines)


def test_it_is_no_higher_than_the_terminal_and_says_how_many_are_left_out() -> None:
    lines = drawn(140, 50)
    assert len(lines) <= 24
    assert lines[-1] == "… and 33 more"
