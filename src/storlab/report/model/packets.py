"""Packets that were kept of each cell, a line each, as tcpdump prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storlab.report.language import words
from storlab.report.model.tables import Table


@dataclass(frozen=True)
class Packets:
    """Those of one trial of a cell. ``path``: where they lie as a capture, in the run's folder."""

    levels: Mapping[str, str]
    node: str
    lines: tuple[str, ...]
    path: str


def packet_tables(packets: Iterable[Packets], shown: Iterable[str]) -> list[Table]:
    """One for each; of its levels those of the factors that are ``shown``."""
    kept = set(shown)
    return [
        Table(
            f"Packets: {', '.join(filter(None, (words.levels(_only(kept, each.levels)), each.node)))}",
            ("packet",),
            tuple((line,) for line in each.lines),
            1,
            f"as a capture: {each.path}",
        )
        for each in packets
    ]


def _only(kept: set[str], levels: Mapping[str, str]) -> dict[str, str]:
    return {name: level for name, level in levels.items() if name in kept}
