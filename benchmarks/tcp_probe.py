"""What watching TCP costs: `storlab-agent tcp` beside bpftrace, as a share of the CPU time of what is watched.

    uv run python -m benchmarks.tcp_probe [--quick] [--json FILE]

One program sends to another as fast as it can, over the loopback of a network namespace of its own with an MTU of 1500
and without offload, so that each segment is one. Meanwhile one side watches; the sides take turns. A side's CPU time is
that of its process from the second after its start on, and that of its eBPF programs, which the kernel measures
(``kernel.bpf_stats_enabled``); it is divided by the CPU time of both programs of the load in the same time.

``storlab``: all counts of each connection, every 100 ms. ``distributions``: ACKs by their bytes and by the gaps between
them as well, for which eBPF programs run with each segment. ``bpftrace``: segments with data, bare ACKs and bytes by
port: the least from which the same metrics of one end follow. Ratios are medians over rounds, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.trace_cost import measuring, programs_of, see_tracefs, watching
from storlab.base.programs import agent_path

_PORT = 17890
_PROGRAM = f"""tracepoint:tcp:tcp_probe /args->sport == {_PORT} || args->dport == {_PORT}/ {{
    @segments[args->sport, args->dport, args->data_len > 0] = count();
    @bytes[args->sport, args->dport] = sum(args->data_len);
}}"""
_LOAD = f"""
import os, socket, sys
server = socket.create_server(("127.0.0.1", {_PORT}))
if os.fork():
    with socket.create_connection(server.getsockname()) as peer:
        while True:
            peer.sendall(bytes(1 << 20))
peer, _ = server.accept()
print(os.getppid(), os.getpid(), flush=True)
buffer = bytearray(1 << 18)
while peer.recv_into(buffer):
    pass
"""


def main() -> None:
    """Watch, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two short rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("network namespaces and eBPF take root: run it as root")
    see_tracefs("benchmarks.tcp_probe")
    rounds, seconds = (2, 3.0) if chosen.quick else (7, 10.0)
    with namespace() as name, measuring():
        inside = ["ip", "netns", "exec", name]
        sides = {
            "storlab": [*inside, str(agent_path()), "tcp", "--endpoint", f"*:{_PORT}"],
            "distributions": [*inside, str(agent_path()), "tcp", "--endpoint", f"*:{_PORT}", "--distributions"],
            "bpftrace": ["bpftrace", "-e", _PROGRAM],
        }
        with load(inside) as pids:
            found = [{side: cost(argv, pids, seconds, name) for side, argv in sides.items()} for _ in range(rounds)]
    print(table(found))
    if chosen.json:
        chosen.json.write_text(json.dumps({"rounds": found, "load": os.getloadavg()}, indent=2) + "\n")


@contextmanager
def namespace() -> Iterator[str]:
    """A network namespace whose loopback has segments of 1500 bytes."""
    name = f"storlab-benchmark-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        inside = ["ip", "netns", "exec", name]
        subprocess.run([*inside, "ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
        offload = ["tso", "off", "gso", "off", "gro", "off"]
        subprocess.run([*inside, "/usr/sbin/ethtool", "-K", "lo", *offload], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


@contextmanager
def load(inside: list[str]) -> Iterator[list[int]]:
    """Process ids of both programs, once they are under way."""
    with subprocess.Popen([*inside, sys.executable, "-c", _LOAD], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            pids = [int(word) for word in process.stdout.readline().split()]
            time.sleep(1)
            yield pids
        finally:
            process.kill()  # the other one then reads the end


def cost(argv: list[str], pids: list[int], seconds: float, namespace: str) -> dict[str, float]:
    """CPU time of this side for each second of the load's, and segments a second."""
    with watching(argv) as pid:
        time.sleep(1)
        before, begun = (_time(pid), sum(map(_time, pids)), _segments(namespace)), time.monotonic()
        time.sleep(seconds)
        own, theirs, segments = _time(pid) - before[0], sum(map(_time, pids)) - before[1], _segments(namespace)
        return {"share": own / theirs, "segments": (segments - before[2]) / (time.monotonic() - begun)}


def _time(pid: int) -> float:
    """CPU time of a process and of its eBPF programs, in s."""
    nanoseconds = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return (nanoseconds + sum(spent for _, spent in programs_of(pid))) / 1e9


def _segments(namespace: str) -> int:
    """All that were sent in it."""
    text = subprocess.run(
        ["ip", "netns", "exec", namespace, "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True
    ).stdout
    names, numbers = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(numbers[names.index("OutSegs")])


def table(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Lines for people."""
    lines = ["                share of the load's CPU time        segments a second"]
    for side in rounds[0]:
        shares = [each[side]["share"] for each in rounds]
        segments = [each[side]["segments"] for each in rounds]
        spread = f"{statistics.median(shares):8.3%}  ({min(shares):.3%} to {max(shares):.3%})"
        lines.append(f"{side:<14}{spread:<40}{statistics.median(segments):12,.0f}")
    ratios = [each["storlab"]["share"] / each["bpftrace"]["share"] for each in rounds]
    return "\n".join([*lines, f"storlab / bpftrace {statistics.median(ratios):.3f}"])


if __name__ == "__main__":
    main()
