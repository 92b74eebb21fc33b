"""Ways of tearing something down, which layers, node kinds and runs declare and ``run/undoing.py`` collects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
