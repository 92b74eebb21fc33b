"""What is Storlab's own: everything that it puts somewhere bears the run's id in its name.

What does not is never removed, unmounted or detached, whatever a journal says.
"""

from __future__ import annotations

import os.path
import re

from storlab.errors import StorlabError
from storlab.nodes.node import Node

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
