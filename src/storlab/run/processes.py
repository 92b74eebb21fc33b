"""Processes of a run that outlived their agent, found by the mark that every one of them carries.

Normally the agent ends what it started. Where it was killed itself, what escaped it is found here: by the variables
``STORLAB_RUN`` and ``STORLAB_NODE`` in its environment, and in the agent's cgroup. Agents carry the mark too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storlab.errors import StorlabError
from storlab.layers.base import undo
from storlab.nodes.node import Node

_RUN, _NODE = "STORLAB_RUN", "STORLAB_NODE"
_PATIENCE = 10.0  # s, for a process that was killed to be gone


def mark(run: str, node: str) -> dict[str, str]:
    """What stands in the environment of a node's agent and of all its processes."""
    return {_RUN: run, _NODE: node}


@undo("processes.end")
async def _end(_: Node, arguments: Mapping[str, Any]) -> str | None:
    return await end_processes(**arguments)


async def end_processes(run: str, node: str, cgroup: str) -> str | None:
    """Kill what is left of a node's processes, but the agents of this very process. On the controller's machine."""
    killed = set()
    deadline = time.monotonic() + _PATIENCE
    while left := _marked(mark(run, node)):
        if time.monotonic() > deadline:
            raise StorlabError(f"the processes {sorted(left)} of the run can't be killed: they hang in the kernel")
        killed |= left
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
    removed = _remove_cgroups(cgroup)
    return f"killed {len(killed)} processes" if killed else f"removed the cgroup {cgroup}" if removed else None


def _marked(variables: Mapping[str, str]) -> set[int]:
    """Processes with these variables that are no zombies, and not this one's own agents."""
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found = set()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                parent = (folder / "stat").read_text().rpartition(") ")[2].split()[1]
                if os.getpid() not in (int(folder.name), int(parent)):
                    found.add(int(folder.name))
    return found


def _remove_cgroups(name: str) -> bool:
    removed = False
    for top in _cgroups(name):
        with contextlib.suppress(OSError):  # what shed its mark, by an environment of its own, is still in here
            (top / "cgroup.kill").write_text("1")
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
                removed = True
    return removed


def _cgroups(name: str) -> list[Path]:
    # os.walk passes over what vanishes meanwhile, such as the cgroups of another run.
    mounted = [root for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if Path(root, "cgroup.procs").exists()]
    return [Path(folder, name) for root in mounted for folder, below, _ in os.walk(root) if name in below]
