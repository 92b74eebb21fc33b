"""Processes of a node that outlived their agent, found by the mark that every one of them carries.

Normally the agent ends what it started. Where it was killed itself, what escaped it is found here: by the variables
``STORLAB_RUN`` and ``STORLAB_NODE`` in its environment, and in the agent's cgroup. Agents carry the mark too. All this
is looked for on the machine of the node that acts, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from storlab.base.errors import StorlabError
from storlab.nodes.node import Node
from storlab.nodes.undo import Name, RunId, RunName, undo

_RUN, _NODE = "STORLAB_RUN", "STORLAB_NODE"
_CGROUP = re.compile(
    r"storlab-(?P<run>[A-Za-z0-9-]{1,128})\.(?P<pid>\d{1,10})\.(?P<started>\d{1,19})\.\d{1,9}-(?P<node>[A-Za-z0-9_.+-]+)"
)
_PATIENCE = 10.0  # s, for a process that was killed to be gone
_FIND = """
cd /proc && marked=$(grep -lzxF -- "$1" [0-9]*/environ 2>/dev/null)
[ -z "$marked" ] || grep -lzxF -- "$2" $marked 2>/dev/null
true
"""
# Its number may have become another process's meanwhile: whoever is killed has the marks at that moment.
_KILL = """
first=$1 second=$2
shift 2
for pid; do
    grep -qzxF -- "$first" /proc/"$pid"/environ && grep -qzxF -- "$second" /proc/"$pid"/environ && kill -KILL "$pid"
done 2>/dev/null
true
"""
# What shed its mark, by an environment of its own, is still in the cgroup. The acting agent looks after its own.
_REMOVE = """
grep -qF "/$1/" /proc/self/cgroup && exit
for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -e "$root/cgroup.procs" ] && find "$root" -type d -name "$1" -uid "$(id -u)" -prune 2>/dev/null
done | while read -r top; do
    echo 1 2>/dev/null >"$top/cgroup.kill"
    for _ in $(seq 100); do # what was killed is still dying
        find "$top" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.1
    done
    if [ -e "$top" ]; then echo "busy $top"; else echo "removed $top"; fi
done
true
"""


def mark(run: str, node: str) -> dict[str, str]:
    return {_RUN: run, _NODE: node}


@undo("processes.end")
async def end_marked(acting: Node, run: RunId, node: Name, cgroup: RunName) -> str | None:
    """End what an agent left, on the node that it was on. Raises ``StorlabError`` for what isn't an agent's cgroup."""
    if (found := parse_cgroup_name(cgroup)) is None or found.run != run:
        raise StorlabError(f"{cgroup} is not the cgroup of an agent of the run {run}: left alone")
    return await end_processes(acting, run, node, cgroup)


class Controller(NamedTuple):
    """A process of Storlab's: its number, and when it started, in clock ticks since the machine booted.

    A number alone may be another process's by now. The times of a cgroup's folder don't tell: the kernel renews them
    whenever it has dropped the folder from its cache.
    """

    pid: int
    started: int

    @classmethod
    def this(cls) -> Controller:
        return cls(os.getpid(), started(os.getpid()) or 0)


def started(pid: int) -> int | None:
    """When a process of this machine did, in clock ticks since boot, see proc_pid_stat(5); ``None``: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


class Agents(NamedTuple):
    """What the name of an agent's cgroup says."""

    run: str
    controller: Controller
    node: str


def cgroup_name(agents: Agents, number: int) -> str:
    """Of the cgroup of an agent; ``number`` sets apart those that its controller launched for one node."""
    pid, at = agents.controller
    return f"storlab-{agents.run}.{pid}.{at}.{number}-{agents.node}"


def parse_cgroup_name(cgroup: str) -> Agents | None:
    """``None`` where it is not the name of an agent's cgroup."""
    if (found := _CGROUP.fullmatch(cgroup)) is None:
        return None
    return Agents(found["run"], Controller(int(found["pid"]), int(found["started"])), found["node"])


async def end_processes(acting: Node, run: str, node: str, cgroup: str) -> str | None:
    """Kill what is left of a node's processes on the machine of ``acting``, but that one's own agent and processes."""
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    words = [f"{name}={value}" for name, value in mark(run, node).items()]
    while True:
        found = (await acting.output("sh", "-c", _FIND, "find", *words)).split()
        left = {pid for path in found if not await _descends(acting, pid := int(path.partition("/")[0]))}
        if not left:
            break
        if time.monotonic() > deadline:
            raise StorlabError(f"the processes {sorted(left)} of the run can't be killed: they hang in the kernel")
        killed |= left
        await acting.run(["sh", "-c", _KILL, "kill", *words, *map(str, left)], check=False)
        await asyncio.sleep(0.01)
    removed = (await acting.output("sh", "-c", _REMOVE, "remove", cgroup)).splitlines()
    if any(line.startswith("busy ") for line in removed):
        raise StorlabError(f"the cgroup {cgroup} can't be removed: its processes hang in the kernel")
    return f"killed {len(killed)} processes" if killed else f"removed the cgroup {cgroup}" if removed else None


async def _descends(acting: Node, pid: int) -> bool:
    while pid != acting.pid:
        try:
            pid = int((await acting.read_text(f"/proc/{pid}/stat")).rpartition(") ")[2].split()[1])
        except FileNotFoundError:
            return True
        if pid <= 1:
            return False
    return True
