"""Where CPUs were in each cell, as nested boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storlab.probes.stacks import Box


@dataclass(frozen=True)
class CpuProfile:
    """Of one cell on one node, all of its trials together."""

    cell: int
    levels: Mapping[str, str]
    node: str
    boxes: tuple[Box, ...]

    def in_words(self, most: int = 5) -> str:
        """The widest commands, with their shares of CPU."""
        tops = [box for box in self.boxes if box.depth == 0][:most]
        return ", ".join(f"{box.name} {box.right - box.left:.0%}" for box in tops)
