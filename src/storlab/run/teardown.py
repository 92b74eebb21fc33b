"""Tearing down what a journal says is still set up, newest first: the same work at a normal end and after a power cut.

Each entry is undone on its own node. Where that can't be reached, it stays pending and is reported; what is on another
machine is never looked for here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from storlab.errors import StorlabError
from storlab.nodes.processes import end_marked
from storlab.run.journal import Journal, Pending
from storlab.run.session import Session
from storlab.run.undoing import undo_table


@dataclass
class Teardown:
    """What was torn down, in words, and what could not be, with the reason."""

    did: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __add__(self, other: Teardown) -> Teardown:
        return Teardown(self.did + other.did, self.failed + other.failed)


async def tear_down(journal: Journal, session: Session, wanted: Callable[[Pending], bool] = lambda _: True) -> Teardown:
    """Undo all pending entries that are wanted. One that fails stays pending, and the others go on."""
    result = Teardown()
    for entry in journal.pending:
        if not wanted(entry):
            continue
        try:
            did = await _undo(entry, session)
        except StorlabError as error:
            journal.failed(entry, str(error))
            result.failed.append(f"{entry.undo} {' '.join(map(str, entry.arguments.values()))}: {error}")
        else:
            journal.undone(entry, did)
            if did is not None:
                result.did.append(did)
    return result


async def tear_down_rest(journal: Journal, session: Session) -> Teardown:
    """Tear down what another process of Storlab's left when it died.

    First what may still be running: it would keep all else busy, or go on setting things up.
    """
    processes = await tear_down(journal, session, lambda entry: entry.undo == end_marked.name)
    return processes + await tear_down(journal, session, lambda entry: entry.undo != end_marked.name)


async def _undo(entry: Pending, session: Session) -> str | None:
    node = await session.node_of(entry.node)
    if node is None:
        return None
    if node.identity.machine.boot != entry.node.machine.boot and not entry.outlives_boot:
        return None
    undo = undo_table().get(entry.undo)
    if undo is None:
        raise StorlabError(f"nothing that is installed here knows how to undo {entry.undo}")
    try:
        async with asyncio.timeout(undo.patience):
            return await undo.function(node, entry.arguments)
    except TimeoutError:
        raise StorlabError(f"it took longer than {undo.patience:g} s") from None
    except (TypeError, KeyError, FileNotFoundError) as error:
        raise StorlabError(f"that can't be undone: {error!r}") from None
