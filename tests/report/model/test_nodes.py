"""Nodes side by side, guests and modes: what the tables say, and where they stay away."""

from dataclasses import replace

import pytest

from storlab.analysis.summary import CellState
from storlab.metrics import Declarations
from storlab.report.document import Table
from storlab.report.formats import REPORTS, names, render
from storlab.report.language import words
from storlab.report.language.format import plus_minus
from storlab.report.model.chapters import capped
from storlab.report.model.input import ReportInput
from storlab.report.model.nodes import guest_tables, node_tables
from storlab.report.model.setup import guests_tables, modes_table, property_tables, unsafe_modes
from storlab.report.model.tables import together

from ..shown import rows
from ..vm_sample import BACKINGS, CAUTION, GUESTS, vm_sample


@pytest.fixture(scope="module")
def run() -> ReportInput:
    return vm_sample()


def table(tables: list[Table], title: str) -> Table:
    return next(each for each in tables if each.title == title)


def labels(shown: Table) -> list[str]:
    return [row[0].partition(" [")[0] for row in shown.rows]


def test_there_is_a_table_for_each_block_size_with_a_row_a_node_and_a_column_a_backing(run: ReportInput) -> None:
    for bs in ("4k", "512"):
        shown = table(node_tables(run.summary, run.declared), f"write.bandwidth: load, bs={bs}")
        assert shown.columns == ("node", *BACKINGS)
        assert labels(shown) == [
            *GUESTS, "all together", "fairness", "start skew",
            *(f"host load, {span}" for span in ("1 min", "5 min", "15 min")), "CPUs used by QEMU",
        ]  # fmt: skip


def test_fairness_and_stalls_stand_below_the_nodes_where_they_are_known(run: ReportInput) -> None:
    index = next(e for e in run.summary.estimates if e.metric == "write.bandwidth.fairness")
    more = tuple(replace(index, metric=f"write.bandwidth.{name}") for name in ("imbalance", "jobs.fairness"))
    shown = next(
        t for t in node_tables(replace(run.summary, estimates=(*run.summary.estimates, *more)), run.declared) if t.rows
    )
    at = labels(shown).index("fairness")
    assert labels(shown)[at + 1 : at + 3] == ["largest ÷ smallest", "fairness among jobs"]
    for title in ("Longest stall", "Stood still"):
        assert labels(table(node_tables(run.summary, run.declared), f"{title}: bs=512")) == [*GUESTS, "worst of all"]
    shown = table(guest_tables(run.summary, run.declared), "CPUs used by each guest's QEMU: bs=4k")
    assert labels(shown) == [*GUESTS, "storage", "all together"]
    assert labels(table(guest_tables(run.summary, run.declared), "Memory of each guest's QEMU: bs=4k")) == [
        *GUESTS,
        "storage",
    ]


def test_no_number_stands_without_how_sure_it_is_or_that_there_is_no_interval(run: ReportInput) -> None:
    for shown in node_tables(run.summary, run.declared) + guest_tables(run.summary, run.declared):
        for row in shown.rows:
            assert all("±" in cell or "always" in cell for cell in row[1:])
    for shown in node_tables(vm_sample(rounds=1).summary, Declarations()):
        assert words.NO_INTERVAL in shown.notes
        number = f"[{shown.notes.index(words.NO_INTERVAL) + 1}]"
        assert all(number in cell for row in rows(shown) for cell in row[1:])


def test_single_nodes_have_no_such_tables_and_lab_notes_have_the_hosts_load(run: ReportInput) -> None:
    alone = replace(run.summary, by_node=tuple(e for e in run.summary.by_node if e.node == "host"))
    assert node_tables(alone, Declarations()) == []
    assert "Per node" not in render(replace(run, summary=alone), "text")
    notes = render(run, "adoc")
    assert notes.count("|host load, 1 min") == notes.count("|fairness") == notes.count("|start skew") == 2


def test_guests_share_a_table_and_what_differs_stands_by_cells(run: ReportInput) -> None:
    shared, differing = guests_tables(run)
    assert shared.title == "Guests: vm-1 to vm-4 and storage"
    assert all(len(row) == 2 and row[1] for row in shared.rows)
    assert [row[0] for row in differing.rows] == ["vm-1 to vm-4", "storage"]
    assert dict(zip(differing.columns, differing.rows[1], strict=True))["memory"] == "1.00 GiB"
    differing = guests_tables(_with_a_machine_for_512(run, "pc"))[-1]
    assert [row[:2] for row in differing.rows] == [
        ("vm-1 to vm-4", "bs=4k (5 cells)"), ("storage", "bs=4k (5 cells)"), ("vm-1 to vm-4", "bs=512 (5 cells)"),
        ("storage", "bs=512 (5 cells)"),
    ]  # fmt: skip
    command = "qemu-system-x86_64 -machine q35 -accel tcg,thread=multi"
    differing = guests_tables(_with_a_machine_for_512(run, command))[-1]
    assert differing.columns == ("guests", "cells", "fact", "value")
    assert ("storage", "bs=512 (5 cells)", "machine", command) in differing.rows


def _with_a_machine_for_512(run: ReportInput, machine: str) -> ReportInput:
    guests = {
        cell: {
            name: dict(facts) | ({"machine": machine} if run.summary.cells[cell - 1].levels["bs"] == "512" else {})
            for name, facts in nodes.items()
        }
        for cell, nodes in run.guests.items()
    }
    return replace(run, guests=guests)


CACHES = "primarycache=all, secondarycache=all, logbias=latency"


def test_modes_stand_in_one_table_and_what_is_the_same_everywhere_stands_once(run: ReportInput) -> None:
    shown = modes_table(run)
    assert shown is not None
    assert rows(shown)[:3] == [
        ("zvol on storage", "backing=zvol (2 cells)", f"{CACHES}, sync=standard"),
        ("zvol on storage", "backing=zvol-async (2 cells)", f"{CACHES}, sync=disabled [1]"),
        ("nbd-export on storage", "all cells", "cache=none, aio=native, write_cache=yes"),
    ]
    assert shown.notes == (words.UNSAFE,)
    shown = modes_table(replace(run, facts={1: {"host": {"1. file": {"on": "ext2/ext3", "cache": "none"}}}}))
    assert shown is not None and shown.rows == (("file", "cache=none"),)


def test_properties_stand_with_their_sources_and_those_that_differ_with_where_they_are_so(run: ReportInput) -> None:
    (shown,) = property_tables(run)
    found = {row[0]: row[1:] for row in shown.rows if row[0] != "sync"}
    for name, value, source in (
        ("volsize", "64M", "local"), ("volblocksize", "4K", "-"), ("compression", "off", "inherited"),
        ("reservation", "none", "default"), ("used", "56K", "-"), ("available", "111M", "-"),
        ("referenced", "8.23M", "-"), ("compressratio", "1.00x", "-"), ("creation", "Sat Nov 21 06:36 2026", "-"),
    ):  # fmt: skip
        assert found[name] == (value, source, "all cells")
    assert [row[1:] for row in shown.rows if row[0] == "sync"] == [
        ("standard", "default", "backing=zvol (2 cells)"), ("disabled", "local", "backing=zvol-async (2 cells)"),
    ]  # fmt: skip
    alike = replace(run, facts={1: run.facts[1]})
    (shown,) = property_tables(alike)
    assert (shown.columns, shown.labels) == (("property", "value", "source"), 3)
    assert render(alike, "text") and "inherited" in render(alike, "md")


@pytest.mark.parametrize(
    ("facts", "unsafe"),
    [({"sync": "disabled"}, "sync=disabled"),
     ({"qemu": {"cache": "unsafe", "no_flush": True}}, "qemu.cache=unsafe, qemu.no_flush=yes"),
     ({"options": ["rw", "nobarrier"]}, "nobarrier"),
     ({"module": {"zfs_nocacheflush": 1}}, "module.zfs_nocacheflush=1"),
     ({"sync": "always", "cache": "writeback", "no_flush": False, "options": ["rw", "barrier"]}, None)],
)  # fmt: skip
def test_a_mode_that_answers_flushes_too_early_is_told(
    run: ReportInput, facts: dict[str, object], unsafe: str | None
) -> None:
    given = replace(run, facts={1: {"vm-1": {"1. thing": {"on": "storage"} | facts}}})
    expected = [] if unsafe is None else [f"all cells: thing on storage has {unsafe}. {words.UNSAFE}"]
    assert unsafe_modes(given) == expected


def test_a_tunable_above_its_cap_is_named_with_what_caps_it(run: ReportInput) -> None:
    pool = {"allocators": {"asked": 8, "effective": 4, "cpus": 4, "limited_by": "spa_cpus_per_allocator"}}
    facts = {"1. zpool": pool | {"module": {"spa_cpus_per_allocator": 1}}}
    said = "spa_num_allocators: 8 asked for, 4 in effect: spa_cpus_per_allocator = 1 with 4 CPUs"
    assert capped(replace(run, facts={1: {"vm": facts, "vm-2": facts}})) == [f"all cells: {said}"]
    assert said in " ".join(render(replace(run, facts={1: {"vm": facts}}), "text").split())
    for other in ({"effective": 1, "cpus": 1, "limited_by": "x"}, {"asked": 1, "effective": 1, "cpus": 1}, {}, "x"):
        assert capped(replace(run, facts={1: {"vm": {"1. zpool": {"allocators": other}}}})) == []
    for limit, module in (([], {}), ({}, "x"), ("x", {"x": [1]}), (None, None)):  # as a stranger's run may have it
        odd: dict[str, object] = {"allocators": {"asked": 8, "effective": 4, "limited_by": limit}, "module": module}
        said = "all cells: spa_num_allocators: 8 asked for, 4 in effect"
        assert capped(replace(run, facts={1: {"vm": {"1. zpool": odd}}})) == [said]


@pytest.mark.parametrize("name", names(REPORTS))
def test_a_caution_stands_in_every_format_and_before_every_verdict_and_number(run: ReportInput, name: str) -> None:
    text = render(run, name)
    assert CAUTION in " ".join(text.replace("&#58;", ":").replace("\n", " ").split())
    if name not in ("csv", "json"):
        shown = text.partition("</style>")[2] if name == "html" else text
        assert shown.index("The guests ran emulated") < shown.index("zfs-file and zvol-async are better than zvol")
        assert shown.index("The guests ran emulated") < shown.index("20260316-124800-c0de")


@pytest.mark.parametrize(
    ("names", "short"),
    [([], ""), (["a"], "a"), (["vm-1", "vm-2"], "vm-1 and vm-2"),
     (["vm-1", "vm-2", "vm-3", "storage"], "vm-1 to vm-3 and storage"),
     (["host", "n8", "n9", "n10", "n12"], "host, n8 to n10 and n12"), (["n01", "n02", "n03"], "n01, n02 and n03"),
     (["", "7", "8", "9"], " and 7 to 9")],
)  # fmt: skip
def test_numbered_names_are_told_in_short(names: list[str], short: str) -> None:
    assert words.compact(names) == short


@pytest.mark.parametrize(
    ("mean", "low", "high", "shown"),
    [(5001216.0, 4959273.0, 5043159.0, "4880 ±40 KiB/s"),
     (26e6, 0.0, 60e6, "25 ±32 MiB/s"),
     (26e6, None, None, "24.8 MiB/s"),
     (26e6, 26e6 - 1, 26e6 + 1, "24.7955 ±0.0001 MiB/s")],
)  # fmt: skip
def test_a_number_with_half_its_interval(mean: float, low: float | None, high: float | None, shown: str) -> None:
    assert plus_minus(mean, "B/s", low, high) == shown


CELLS = tuple(
    CellState(number, {"fs": fs, "bs": bs}, "measured", 1)
    for number, (fs, bs) in enumerate(((fs, bs) for fs in ("a", "b", "c") for bs in ("4k", "8k")), start=1)
)


@pytest.mark.parametrize(
    ("numbers", "name"),
    [([1, 2, 3, 4, 5, 6], "all cells"), ([1, 2], "fs=a (2 cells)"), ([1, 3], "fs=a or b, bs=4k (2 cells)"),
     ([1, 2, 3, 4], "fs=a or b (4 cells)"), ([1, 4], "fs=a, bs=4k; fs=b, bs=8k"), ([6], "fs=c, bs=8k")],
)  # fmt: skip
def test_cells_are_called_by_what_only_they_have(numbers: list[int], name: str) -> None:
    assert together([cell for cell in CELLS if cell.cell in numbers], CELLS) == name
