"""Stacks as nested boxes: the widths are shares of CPU, what is called lies below its caller.

B. Gregg, "The Flame Graph", ACM Queue 14 (2016); upside down, it is an icicle plot (J. B. Kruskal, J. M. Landwehr,
1983).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from storlab.profiling.agent_output import UNKNOWN, Frame
from storlab.profiling.shares import Profile, is_user

Kind = Literal["command", "kernel", "user", "idle"]

NARROWEST = 0.004
"""The share of CPU below which a box is left out, with all below it: nobody would see it."""
DEEPEST = 40
"""Calls below each other that are shown."""


@dataclass(frozen=True)
class Box:
    """One function in one place: from ``left`` to ``right``, shares of CPU; ``depth`` 0 is a command."""

    name: str
    kind: Kind
    depth: int
    left: float
    right: float


@dataclass
class _Node:
    count: int = 0
    below: dict[tuple[str, Kind], _Node] = field(default_factory=dict)


def boxes(profiles: Sequence[Profile]) -> list[Box]:
    """Those of all ``profiles`` together, the widest first at each depth."""
    root = _Node()
    for found in profiles:
        for (comm, group, frames), count in found.stacks.items():
            root.count += count
            path: list[tuple[str, Kind]] = [(comm, "command")]
            path += (
                [("idle", "idle")]
                if group == "idle"
                else [(f[0], _kind(f)) for f in [f for f in frames if f[1] != UNKNOWN][:DEEPEST]]
            )
            node = root
            for step in path if group != "idle" else path[1:]:
                node = node.below.setdefault(step, _Node())
                node.count += count
    drawn: list[Box] = []
    if root.count:
        _draw(root.below, 0, 0.0, root.count, drawn)
    return drawn


def _kind(frame: Frame) -> Kind:
    return "user" if is_user(frame) else "kernel"


def _draw(below: Mapping[tuple[str, Kind], _Node], depth: int, left: float, whole: int, drawn: list[Box]) -> None:
    for (name, kind), node in sorted(below.items(), key=lambda item: (-item[1].count, item[0])):
        share = node.count / whole
        if share < NARROWEST:
            continue
        drawn.append(Box(name, kind, depth, left, left + share))
        _draw(node.below, depth + 1, left, whole, drawn)
        left += share
