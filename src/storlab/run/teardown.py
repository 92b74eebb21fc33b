"""Taking down what a journal says still stands, newest first. The same work at a normal end and after a power cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from storlab.errors import StorlabError
from storlab.layers.base import UNDO
from storlab.nodes.node import Node
from storlab.run.journal import Journal, Pending


@dataclass
class Teardown:
    """What was taken down, in words, and what could not be, with the reason."""

    did: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


async def take_down(
    journal: Journal, nodes: Mapping[str, Node], wanted: Callable[[Pending], bool] = lambda _: True
) -> Teardown:
    """Undo all pending entries that are wanted. One that fails stays pending, and the others go on.

    A node that is gone took all that it held with it, but for nodes on this machine: ``host`` acts for them.
    """
    result = Teardown()
    for entry in journal.pending:
        if not wanted(entry):
            continue
        node = nodes.get(entry.node)
        if node is None or node.lost is not None:
            node = nodes["host"]
        undo = UNDO.get(entry.undo)
        try:
            if undo is None:
                raise StorlabError(f"this version of Storlab does not know how to undo {entry.undo}")
            did = await undo(node, entry.arguments)
        except StorlabError as error:
            journal.failed(entry, str(error))
            result.failed.append(f"{entry.undo} {_words(entry.arguments)}: {error}")
        else:
            journal.undone(entry, did)
            if did is not None:
                result.did.append(did)
    return result


def _words(arguments: Mapping[str, object]) -> str:
    return " ".join(str(value) for value in arguments.values())
