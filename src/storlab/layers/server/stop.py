"""Ending a program that a layer has started, whoever comes to do so, and removing its folders."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

from msgspec import Meta

from storlab.errors import StorlabError
from storlab.nodes.node import Node, Process
from storlab.nodes.undo import LONG, RunName, RunPath, refuse_foreign, remove_folder, undo, until_free

_LOOK = 0.02  # s
_REST = 10.0  # s, for what was killed to be gone
_KILL = 'echo 1 > "$1/cgroup.kill" || xargs --no-run-if-empty kill -KILL < "$1/cgroup.procs"'  # the latter before 5.14
_REMOVE = 'find "$1" -depth -type d -exec rmdir -- {} ";"; ! test -e "$1"'

_Program = Annotated[str, Meta(max_length=255)]
_Signal = Annotated[str, Meta(pattern=r"^SIG[A-Z0-9]{1,12}$")]
_Seconds = Annotated[float, Meta(ge=0, le=86400)]


@undo("server.stop", patience=LONG, outlives_boot=True)
async def stop(
    node: Node, name: RunName, program: _Program, folders: list[RunPath], signal: _Signal, patience: _Seconds
) -> str | None:
    """End a program that was started by a name, as ``Node.start`` takes it, and remove its folders."""
    refuse_foreign(f"/{name}", itself=True)
    for path in folders:
        refuse_foreign(path)
    process = node.named.get(name)
    if process is None or process.ended is not None or process.lost is not None:
        did = await _end_leftovers(node, name, program)
    else:
        did = await _end(process, program, signal, patience)
    node.named.pop(name, None)
    for path in folders:
        removed = await remove_folder(node, path, itself=False)
        did = did or removed
    return did


async def _end(process: Process, program: str, signal: str, patience: float) -> str | None:
    await process.stop(patience, signal)
    try:
        async with asyncio.timeout(patience + _REST):
            await process.rest()
    except TimeoutError:
        raise _hangs(program) from None
    if process.ended is not None and process.ended.stopped_by is None:
        return None  # it had ended by itself, and word of that was still on its way
    if process.ended is not None and process.ended.stopped_by == "KILL":
        return f"killed {program} (process {process.pid}), which had not ended {patience:g} s after {signal}"
    return f"stopped {program} (process {process.pid})"


async def _end_leftovers(node: Node, name: str, program: str) -> str | None:
    """Kill what an agent left that was killed itself. One that could make no cgroup took its programs with it."""
    run = name.rpartition("-")[0]
    own = ["-path", f"*/{run}.*/run-*-{name}"]  # below that of an agent of this run
    found = await node.run(["find", "/sys/fs/cgroup", "-type", "d", *own], check=False)
    killed = False
    for folder in found.stdout.decode().split():
        deadline = asyncio.get_running_loop().time() + _REST
        while await _is_populated(node, folder):
            if asyncio.get_running_loop().time() > deadline:
                raise _hangs(program)
            killed = True
            await node.run(["sh", "-c", _KILL, "sh", folder], check=False)
            await asyncio.sleep(_LOOK)
        await until_free(node, ["sh", "-c", _REMOVE, "sh", folder])
    return f"killed {program}, which its agent had left" if killed else None


async def _is_populated(node: Node, folder: str) -> bool:
    try:
        return "populated 1" in (await node.read_text(f"{folder}/cgroup.events")).splitlines()
    except FileNotFoundError:
        return False


def _hangs(program: str) -> StorlabError:
    return StorlabError(f"{program} does not end, not even by KILL: it hangs in the kernel")


def server_name(run: str, folder: str) -> str:
    return f"storlab-{run}-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"
