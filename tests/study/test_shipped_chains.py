"""Where each layer of the shipped studies is set up: golden files, one line for each chain, equal cells together.

``below | above`` a crossing; a star marks what all nodes of the group share, brackets what is kept beyond a trial.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storlab.study.cells import Cell
from storlab.study.chains import Chain, Link
from storlab.study.study import load_study, shipped_studies

GOLDEN = Path(__file__).parent / "golden"


def dump(name: str) -> str:
    cells: dict[str, list[str]] = {}
    for cell in load_study(shipped_studies()[name]).cells:
        cells.setdefault(of_cell(cell), []).append(" ".join(cell.levels.values()) or "-")
    return "\n".join(f"{', '.join(levels)}\n{text}" for text, levels in cells.items())


def of_cell(cell: Cell) -> str:
    return "".join(f"  {of_chain(cell, chain)}\n" for chain in cell.chains)


def of_chain(cell: Cell, chain: Chain) -> str:
    group = cell.nodes[chain.group]
    name = f"{chain.group}:{chain.name}" if chain.name else chain.group
    counts = f"{group.count} × {chain.count}" if chain.count > 1 else str(group.count)
    below, above = ", ".join(map(of_link, chain.below)), ", ".join(map(of_link, chain.above))
    return f"{name} ({group.kind}, {counts}) from {chain.source}: {f'{below} | ' if below else ''}{above}"


def of_link(link: Link) -> str:
    kept = f" [{link.keep}]" if link.keep != "trial" else ""
    return f"{link.layer.label()}{'*' if link.once else ''}{kept}"


@pytest.mark.parametrize("name", shipped_studies())
def test_layers_are_where_the_golden_file_has_them(name: str) -> None:
    file = GOLDEN / f"chains-{name}.txt"
    if os.environ.get("STORLAB_UPDATE_GOLDEN"):
        file.write_text(dump(name))
    assert dump(name) == file.read_text()
