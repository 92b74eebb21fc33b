"""The page on installing names what an installation has, as the package itself declares it."""

from __future__ import annotations

import re

from tools.install_size import Cost, Requirement, brought_by, requirements, table, used_modules

from storlab.extras import MODULES

from .pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "installing.md").read_text("utf-8")
_ROW = re.compile(r"^\| (?P<name>[\w-]+) \| (?:`(?P<extra>\w+)`)? ?\| [\d.]+ \| [\d.]+ \|$", re.MULTILINE)


def test_the_table_has_every_dependency_with_its_extra() -> None:
    rows = {Requirement(row["name"], row["extra"] or "") for row in _ROW.finditer(PAGE)}
    assert rows == set(requirements("storlab"))


def test_every_extra_is_named_with_its_feature() -> None:
    assert {extra for extra in MODULES if f"`storlab[{extra}]`" not in PAGE} == set()


def test_what_only_one_dependency_brings_counts_for_it_and_what_is_asked_for_directly_does_not() -> None:
    assert {"polars", "polars-runtime-32"} <= brought_by(["polars"]).keys()
    assert "numpy" in brought_by(["scipy"])
    assert "numpy" not in brought_by(["scipy"], without={"numpy"})


def test_the_modules_whose_import_is_timed_are_those_that_storlab_uses() -> None:
    assert "scipy.special" in used_modules("scipy")
    assert used_modules("qemu-qmp") == ["qemu.qmp"]


def test_costs_are_rows_of_a_table_in_megabytes() -> None:
    rows = list(table([Cost(Requirement("numpy"), 57_400_000, 0.2), Cost(Requirement("qemu-qmp", "vm"), 200_000, 0.1)]))
    assert rows[2:4] == ["| numpy |  | 57.4 | 0.20 |", "| qemu-qmp | `vm` | 0.2 | 0.10 |"]
    assert rows[4].startswith("| **base installation**")
