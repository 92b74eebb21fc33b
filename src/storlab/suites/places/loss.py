"""Why a guest is gone, and what is kept of it."""

from __future__ import annotations

from storlab.errors import StorlabError
from storlab.nodes.node import Node
from storlab.run.session import Session


class GuestLost(StorlabError):
    """A guest is gone, or was given up. ``reason``: a sentence; ``hung``: a script could not even be killed."""

    def __init__(self, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.hung = reason, hung


def loss_of(node: Node, session: Session, otherwise: str) -> GuestLost:
    """What is known of a guest's end, from QEMU's events, how it ended, and its console."""
    told = next((loss.reason for loss in reversed(session.losses) if loss.node == node.instance), None)
    return GuestLost((told or node.lost or otherwise).removeprefix(f"node {node.name}: "))
