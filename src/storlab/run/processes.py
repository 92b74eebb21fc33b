"""Processes of a run that outlived their agent, found by the mark that every one of them carries.

Normally the agent ends what it started. Where it was killed itself, what escaped it is found here: by the variable
``STORLAB_RUN`` in its environment, and in the agent's cgroup.
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

MARK = "STORLAB_RUN"
_PATIENCE = 5.0  # s, for an agent whose stream just closed to end by itself


@undo("processes.end")
async def _end(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """On the controller's machine whatever ``node`` is: it has no agent of its own any more."""
    run, cgroup = arguments["run"], arguments["cgroup"]
    spare = {os.getpid(), node.pid}
    deadline = time.monotonic() + _PATIENCE
    while (left := _marked(run) - spare) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while _marked(run) - spare:
        if time.monotonic() > deadline + _PATIENCE:
            raise StorlabError(f"processes {sorted(_marked(run) - spare)} of the run can't be killed")
        await asyncio.sleep(0.02)
    removed = _remove_cgroups(cgroup)
    return f"killed {len(left)} processes" if left else f"removed the cgroup {cgroup}" if removed else None


def _marked(run: str) -> set[int]:
    """Processes that carry the run's mark and are not zombies."""
    found = set()
    mark = f"{MARK}={run}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def _remove_cgroups(name: str) -> bool:
    removed = False
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        for top in Path(root).rglob(name) if name and Path(root, "cgroup.procs").exists() else ():
            with contextlib.suppress(OSError):  # what shed its mark, by an environment of its own, is still in here
                (top / "cgroup.kill").write_text("1")
            for folder in sorted([top, *(path for path in top.rglob("*") if path.is_dir())], reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    removed = True
    return removed
