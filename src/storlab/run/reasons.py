"""Why a trial failed, in one sentence: an error, with what is known of its cause."""

from __future__ import annotations

from storlab.errors import DiskFull, StorlabError, TrialError
from storlab.layers.resources import Dir, Export, Share
from storlab.nodes.node import Node
from storlab.run.session import Session
from storlab.run.setup.build import Built

_READ_ONLY = "Read-only file system"  # EROFS, see strerror(3): what a confined program hears
_FULL = 1024 * 1024  # bytes: with less, no file system does anything useful any more


async def reason_of(error: StorlabError, built: Built, session: Session) -> str:
    """The error in one sentence; a full disk is named as such, whoever noticed it and in whatever words."""
    full = await _full_target(built, session)
    if full or isinstance(error, DiskFull):
        return f"{error} ({full})" if full else str(error)
    for name, node in built.nodes.items():
        if await _is_full(session, node):
            return f"{error} (the file system of {await session.scratch_on(node)} on {name} is full)"
        if complaint := node.complaint():
            return f"{error} ({complaint})"
    said = f"{error}\n{error.detail if isinstance(error, TrialError) else ''}"
    if _READ_ONLY in said and not session.permissions.unconfined:
        return f"{error} (a load may write only to its target and its own folder, unless run --unconfined)"
    return str(error)


async def _full_target(built: Built, session: Session) -> str:
    """That what is served to others is full, or stands on a file system that is, where one does.

    Not all protocols tell their clients, and those that do have it sound as if the client's were full.
    """
    for part in built.parts.values():
        node, served = part.node, any(isinstance(each, Share | Export) for each in part.stack.resources)
        if node is None or node.lost is not None or not served:
            continue
        below = [each for one in (part, *part.all_below()) for each in one.stack.resources]
        for path in {each.path for each in below if isinstance(each, Dir) and each.node == node.name}:
            if await _is_full(session, node, path):
                return f"what {node.name} serves is full"
    return ""


async def _is_full(session: Session, node: Node, path: str = "") -> bool:
    try:
        path = path or await session.scratch_on(node)
        listing = await node.output("df", "--output=avail", "-B1", path)
        return int(listing.split()[-1]) < _FULL
    except (StorlabError, ValueError, IndexError):
        return False  # such as of a guest that was ended at the trial's time-out
