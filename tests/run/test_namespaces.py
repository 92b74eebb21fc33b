"""Nodes of kind ``netns``: this machine's files and devices behind a network card of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, needs_root, processes_with, wait_until

HEAD = """
primary = "elapsed"
repeat = { until = "max", min = 2, max = 2 }
trial = { settle = { sync = false, drop_caches = false } }
[probes]
"""
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 9000)) as server:
    while server.accept()[0].send(b"hello") != 5: pass
"""
ASK = """
import socket, subprocess, time
for attempt in range(600):
    for address in ("10.213.0.2", "10.213.0.3"):
        try:
            with socket.create_connection((address, 9000), 1) as peer:
                print(peer.recv(5).decode(), peer.getsockname()[0], peer.getpeername()[0])
                raise SystemExit
        except OSError:
            time.sleep(0.1)
raise SystemExit("nobody answers")
"""
TWO = f"""{HEAD}
[nodes.server]
kind = "netns"
stack = [{{ layer = "directory" }}]
[nodes.client]
kind = "netns"
stack = [{{ layer = "directory" }}]
[workload.serve]
on = "server"
command = {{ argv = ["python3", "-c", '''{SERVE}'''] }}
[workload.ask]
on = "client"
command = {{ argv = ["python3", "-c", '''{ASK}'''] }}
"""
MOUNTED = f"""{HEAD}
[nodes.client]
kind = "netns"
stack = [
    {{ layer = "file", size = "64M" }},
    {{ layer = "loop" }},
    {{ layer = "mkfs", type = "ext4" }},
    {{ layer = "mount" }},
]
[workload.load]
command = {{ argv = ["sh", "-c", "ip -brief address show; [ {{round}} = 2 ] || exec sleep 3600"] }}
"""


def output(lab: Laboratory, trial: int, node: str, load: str) -> str:
    return (lab.out / "trials" / f"{trial:04d}" / node / load / "stdout").read_text()


@needs_root
def test_two_of_them_reach_each_other_by_their_addresses_and_leave_nothing(lab: Laboratory) -> None:
    result = lab.run(TWO)
    assert result.status == 0, str(result)
    said = [output(lab, trial, "client", "ask").split() for trial in (1, 2)]
    assert said[0] == said[1], "a node keeps its address for the whole run"
    assert said[0][0] == "hello"
    assert set(said[0][1:]) == {"10.213.0.2", "10.213.0.3"}
    assert lab.leftovers() == []


@needs_root
def test_what_is_mounted_there_is_seen_and_undone_by_clean(lab: Laboratory) -> None:
    process = lab.start_run(MOUNTED)
    assert wait_until(lambda: process.poll() is not None or lab.sleeps(), 60)
    namespaces = sorted(path.name for path in Path("/run/netns").glob(f"storlab-{lab.identity}*"))
    assert namespaces == [f"storlab-{lab.identity}", f"storlab-{lab.identity}-client"]
    kill(process)
    assert ended(process).status == -9
    result = lab.storlab("clean", lab.out)
    assert result.status == 0, str(result)
    assert {"unmounted", "detached", "removed"} <= {
        line.split(": ")[1].split()[0] for line in result.stdout.splitlines()
    }
    assert lab.leftovers() == []


@needs_root
@pytest.mark.slow
def test_an_agent_that_is_killed_comes_back_with_the_same_card(lab: Laboratory) -> None:
    process = lab.start_run(MOUNTED)
    assert wait_until(lambda: process.poll() is not None or lab.sleeps(), 60)
    marked = set(processes_with("STORLAB_NODE=client")) & set(processes_with(f"STORLAB_RUN={lab.identity}"))
    (agent,) = (pid for pid in marked if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    os.kill(agent, signal.SIGKILL)
    result = ended(process)
    assert [record.status for record in lab.records()] == ["failed", "done"], str(result)
    assert "storlab0" in output(lab, 2, "client", "load")
    assert "10.213.0.2/16" in output(lab, 2, "client", "load")
    assert lab.leftovers() == []
