"""Ways of tearing something down, which layers, node kinds and runs declare and ``run/undoing.py`` collects.

Only what is Storlab's own is torn down: everything that it puts somewhere bears the run's id in its name. What does not
is never removed, unmounted or detached, whatever a journal says.
"""

from __future__ import annotations

import asyncio
import os.path
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storlab.errors import StorlabError
from storlab.nodes.node import Node

LONG = 3600.0
"""For files of any size: a file system may tell its disk of every block that a large one frees."""

Function = Callable[[Node, Mapping[str, Any]], Awaitable[str | None]]


@dataclass(frozen=True)
class Undo:
    """One way of tearing something down, by the ``name`` that journals use.

    ``function`` gets the node that it was set up on and the arguments from the journal, and returns what it did, or
    ``None`` where nothing was set up any more. It must be idempotent, and must touch nothing but what its arguments
    name: it may run long after, by ``storlab clean``, when somebody else has taken what was ours. ``patience``: seconds
    that it may take; the default is for unmounting, which writes back whatever the page cache still holds.
    ``outlives_boot``: what it undoes is still there after its machine was booted again, as files are.
    """

    name: str
    function: Function
    patience: float = 120.0
    outlives_boot: bool = False


def undo(name: str, *, patience: float = 120.0, outlives_boot: bool = False) -> Callable[[Function], Undo]:
    """Make an ``Undo`` of the function below; a layer or node kind then lists it in its ``undoes``."""
    return lambda function: Undo(name, function, patience, outlives_boot)


_BUSY_TRIES = 40
_BUSY_WAIT = 0.25  # s; the kernel may still drop references of processes that were just killed
_NAME = re.compile(r"\.?storlab-\d{8}-\d{6}-[0-9a-f]{4}(-[^/]*)?")


def refuse_foreign(path: str, *, itself: bool = False) -> None:
    """Raise ``StorlabError`` unless ``path`` lies in a folder of Storlab's, or, with ``itself``, is one."""
    names = path.split("/")
    plain = path.startswith("/") and os.path.normpath(path) == path
    if not plain or not any(_NAME.fullmatch(name) for name in (names[-1:] if itself else names[:-1])):
        raise StorlabError(f"{path} is not Storlab's own: left alone")


def refuse_foreign_pool(name: str) -> None:
    """Raise ``StorlabError`` unless ``name`` is that of a storage pool of Storlab's, or of something in one."""
    if not _NAME.fullmatch(name.partition("/")[0]):
        raise StorlabError(f"the pool of {name} is not Storlab's own: left alone")


def own_folders(path: str) -> list[str]:
    """Of the folders that ``path`` lies in, those of Storlab's, the outermost first."""
    names = path.split("/")
    first = next((at for at, name in enumerate(names) if _NAME.fullmatch(name)), len(names))
    return ["/".join(names[:at]) for at in range(first + 1, len(names))]


async def remove_folder(node: Node, path: str, *, itself: bool = True) -> str | None:
    """Remove a folder of Storlab's with all that it holds; says so, or ``None`` where there is none.

    Raises ``StorlabError`` for what is not Storlab's. Without ``itself``, it lies in one that bears a run's name.
    """
    refuse_foreign(path, itself=itself)
    if not (await node.run(["test", "-d", path], check=False)).ok:
        return None
    # One file system only: should a mount in there have outlived its own undoing, its contents stay.
    await node.run(["rm", "--recursive", "--force", "--one-file-system", "--", path])
    return f"removed {path}"


async def until_free(node: Node, argv: Sequence[str]) -> bool:
    """Try a command again for some seconds, as long as it fails: what was just killed may still hold what it undoes."""
    for _ in range(_BUSY_TRIES):
        if (await node.run(argv, check=False)).ok:
            return True
        await asyncio.sleep(_BUSY_WAIT)
    return False
