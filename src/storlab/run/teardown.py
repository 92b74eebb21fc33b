"""Taking down what a journal says still stands, newest first. The same work at a normal end and after a power cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from storlab.errors import StorlabError
from storlab.layers.base import PATIENCE, UNDO
from storlab.layers.registry import layer_types
from storlab.run import processes, scratch
from storlab.run.journal import Journal, Pending
from storlab.run.session import Session

__all__ = ["Teardown", "processes", "scratch", "take_down", "take_down_rest"]  # those two bring ways to undo


@dataclass
class Teardown:
    """What was taken down, in words, and what could not be, with the reason."""

    did: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


async def take_down(journal: Journal, session: Session, wanted: Callable[[Pending], bool] = lambda _: True) -> Teardown:
    """Undo all pending entries that are wanted. One that fails stays pending, and the others go on.

    A guest that is gone took all that it held with it. For other nodes that are not in the session, which are on this
    machine, ``host`` acts.
    """
    result = Teardown()
    for entry in journal.pending:
        if not wanted(entry):
            continue
        try:
            did = await _undo(entry, session)
        except StorlabError as error:
            journal.failed(entry, str(error))
            result.failed.append(f"{entry.undo} {_words(entry.arguments)}: {error}")
        else:
            journal.undone(entry, did)
            if did is not None:
                result.did.append(did)
    return result


async def take_down_rest(journal: Journal, session: Session) -> Teardown:
    """Take down what another process of Storlab's left when it died.

    First what may still be running: it would keep all else busy, or go on putting things up.
    """
    processes = await take_down(journal, session, lambda entry: entry.undo == "processes.end")
    rest = await take_down(journal, session, lambda entry: entry.undo != "processes.end")
    return Teardown(processes.did + rest.did, processes.failed + rest.failed)


async def _undo(entry: Pending, session: Session) -> str | None:
    layer_types()  # among them those of somebody else's packages
    undo = UNDO.get(entry.undo)
    if undo is None:
        raise StorlabError(f"this version of Storlab does not know how to undo {entry.undo}")
    await session.revive()  # an agent may have died during this very teardown
    node = session.nodes.get(entry.node)
    if entry.guest and (node is None or node.lost is not None):
        return None
    node = node or session.host
    try:
        async with asyncio.timeout(PATIENCE[entry.undo]):
            return await undo(node, entry.arguments)
    except TimeoutError:
        raise StorlabError(f"it took longer than {PATIENCE[entry.undo]:g} s") from None
    except (TypeError, KeyError, FileNotFoundError) as error:
        raise StorlabError(f"that can't be undone: {error!r}") from None


def _words(arguments: object) -> str:
    return " ".join(str(value) for value in arguments.values()) if isinstance(arguments, dict) else str(arguments)
