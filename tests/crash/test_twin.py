"""The durable twin: what a study's settings put off is not put off in it, and all else is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.crash.twin import durable_twin
from storlab.layers.database.base import DatabaseLayer
from storlab.study.cells import Cell
from storlab.study.study import load_study

STUDY = """
schema = 1
title = "A test"
primary = "commit.rate"
[nodes.vm]
kind = "vm"
stack = [
  {{ layer = "file", size = "512M" }}, {{ layer = "virtio-blk" }}, {{ layer = "mkfs", type = "ext4" }},
  {{ layer = "mount" }}, {{ {database} }},
]
[workload.commits]
on = ["vm"]
sql-ledger = {{ runtime = "1s" }}
"""


def cell_with(folder: Path, database: str) -> Cell:
    path = folder / "study.toml"
    path.write_text(STUDY.format(database=database))
    (cell,) = load_study(path).cells
    return cell


def database_of(cell: Cell) -> DatabaseLayer:
    (found,) = (layer for each in cell.declared for layer in each.layers if isinstance(layer, DatabaseLayer))
    return found


@pytest.mark.parametrize(
    ("database", "keys", "twin"),
    [
        ('layer = "mariadb", flush_at_commit = 0', "flush_at_commit = 0", 'layer = "mariadb"'),
        ('layer = "mariadb", flush_at_commit = 2, pool = "16M"', "flush_at_commit = 2",
         'layer = "mariadb", pool = "16M"'),
        ('layer = "postgresql", flush_at_commit = false', "flush_at_commit = false", 'layer = "postgresql"'),
        ('layer = "postgresql", settings = { fsync = "off", jit = "off" }', "fsync = off",
         'layer = "postgresql", settings = { jit = "off" }'),
    ],
)  # fmt: skip
def test_it_lacks_what_puts_durability_off_and_nothing_else(
    tmp_path: Path, database: str, keys: str, twin: str
) -> None:
    found = durable_twin(cell_with(tmp_path, database))
    assert found is not None and found.name == f"without {keys}"
    assert database_of(found.cell) == database_of(cell_with(tmp_path, twin))


def test_a_durable_set_up_has_none(tmp_path: Path) -> None:
    assert durable_twin(cell_with(tmp_path, 'layer = "mariadb", doublewrite = false')) is None
