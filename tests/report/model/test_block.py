"""Block I/O in reports: tables in every format, charts for what was counted and for what was imported."""

import csv
import io
from dataclasses import replace

import orjson
import pytest

from storlab.analysis.summary import BelowUnit, Share, SizeShare, from_json
from storlab.report.charts.shares import SIZES, label, sizes_chart
from storlab.report.charts.theme import ABOVE, BELOW, to_svg
from storlab.report.formats import render
from storlab.report.language.format import part
from storlab.report.model.block import block_detail_tables, block_tables, groups
from storlab.report.model.input import ReportInput

from ..samples import REASON, block_sample, imported_sample
from ..shown import drawn, kind


@pytest.fixture(scope="module")
def run() -> ReportInput:
    return block_sample()


@pytest.fixture(scope="module")
def page(run: ReportInput) -> str:
    return render(run, "html")


def test_programs_have_block_io_as_data_with_a_row_for_every_share(run: ReportInput) -> None:
    assert from_json(render(run, "json")).block_io == run.summary.block_io
    rows = [row for row in csv.DictReader(io.StringIO(render(run, "csv"))) if row["kind"] == "block-io"]
    (row,) = [
        row for row in rows if row["metric"] == "write.below.16k" and row["cell"] == "2" and "fua" in row["reason"]
    ]
    assert row["reason"] == "fua+sync+meta shorter" and float(row["mean"]) == pytest.approx(7 / 10000)
    assert len(orjson.loads(render(run, "json"))["block_io"]) == len(run.summary.block_io) == 8


def test_the_page_has_a_section_with_charts_and_tables_and_puts_reads_aside(page: str) -> None:
    section = page.partition('<section id="block"')[2].partition("</section>")[0]
    before, _, aside = section.partition("<details>")
    assert '<a href="#block">Block I/O</a>' in page
    assert before.count('class="chart"') == 8, "as squares, and as bars side by side"
    assert "Writes below 16k: load=storm" in before and "Reads" not in before
    assert "Reads: load=storm" in aside
    assert "Latency" not in page  # bytes are no latencies


def test_charts_say_in_words_who_goes_below_and_what_was_not_measured(run: ReportInput, page: str) -> None:
    assert REASON in page
    panel = next(panel for panel in drawn(run) if kind(panel) == "block")
    assert to_svg(panel.draw()).count(">unsupported: mkfs.ext4: Warning") == 1
    assert f"ext4-16k: unsupported: {REASON}" in panel.alt
    told = {panel.name: panel.alt for panel in drawn(run) if kind(panel) == "block"}
    assert told["block-writes-load-storm-lengths"].endswith(
        f"Share shorter than 16k: xfs-16k 0 %, ext4-bigalloc 99.8 ±0.1 %. ext4-16k: unsupported: {REASON}"
    )
    assert told["block-writes-load-storm-alignments"].endswith(
        f"Share in whole 16k: xfs-16k 100 %, ext4-bigalloc 0.020 %. ext4-16k: unsupported: {REASON}"
    )
    assert {kind(panel) for panel in drawn(run)} == {"block"}


def test_what_goes_below_is_a_table_with_commands_where_they_were_told_apart(run: ReportInput) -> None:
    below = next(table for table in block_tables(run.summary) if "below" in table.title)
    assert below.rows[0] == ("xfs-16k", "nothing", "", "0", "0", "0")
    assert [row[1:3] for row in below.rows[1:]] == [
        ("none", "4k"), ("sync meta", "uneven, 20k"), ("fua sync meta", "4k"), ("sync", "off the boundary, 64k"),
    ]  # fmt: skip
    first = run.summary.block_io[1]
    share = Share(0.5, 0.5, 0.5)
    kinds = tuple(
        BelowUnit(flags, comm, "shorter" if flags else None, 5, share, share, ((4096, 1.0),))
        for flags, comm in (("sync", "fio"), (None, None))
    )
    summary = replace(run.summary, block_io=(replace(first, below=kinds),))
    below = next(table for table in block_tables(summary) if "below" in table.title)
    assert below.columns[:4] == ("fs", "flags", "command", "length")
    assert [row[1:4] for row in below.rows] == [("sync", "fio", "4k"), ("others", "others", "several")]


def test_imported_histograms_are_drawn_and_nothing_is_made_up() -> None:
    run = imported_sample()
    assert {panel.name for panel in drawn(run)} == {"block-all-requests-lengths", "block-all-requests-alignments"}
    (table,) = block_tables(run.summary)
    assert table.columns == ("file", "4k", "8k", "16k", "32k", "64k")
    assert table.rows == (("vda", "100", "73", "73", "0", "0"),)
    assert "All requests" in render(run, "html")
    assert {"by length", "by alignment"} <= {
        t.title.removeprefix("All requests ") for t in block_detail_tables(run.summary)
    }


def test_a_run_without_counted_requests_has_no_such_section(run: ReportInput) -> None:
    bare = replace(run, summary=replace(run.summary, block_io=()))
    assert groups(bare.summary) == []
    for format_name in ("text", "md", "adoc", "html"):
        assert "Block I/O" not in render(bare, format_name)


def test_sizes_have_colours_of_their_own_up_to_the_last_column() -> None:
    rare = SizeShare(512, Share(1e-7, 0, 1e-6))
    most = SizeShare(16384, Share(1 - 1e-7, 1, 1))
    svg = to_svg(sizes_chart({"a": [rare, most], "b": []}, ["a", "b"], 16384, "length", {}))
    assert svg.count(f'fill="{BELOW[0]}"') == 1 and svg.count(f'fill="{ABOVE[-1]}"') == 1 and ">&lt;<" in svg
    assert ">&gt;99<" in svg
    assert sum(svg.count(f'fill="{colour}"') for colour in (*BELOW, *ABOVE)) == 2
    assert [label(size) for size in (512, 1024, 16384, SIZES[-1])] == [".5", "1", "16", "≥1M"]


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [(0.0, 0.0, "0 %"), (1.0, 0.0, "100 %"), (0.99983, 0.0, "99.98 %"), (0.00012, 0.0, "0.012 %"),
     (0.48, 0.02, "48 ±2 %"), (0.482, 0.0001, "48 %"), (0.956, 0.0, "95.6 %"), (0.9999999, 0.0, ">99.9999 %"),
     (1e-9, 0.0, "<0.0001 %"), (0.999, 0.002, "99.9 ±0.2 %")],
)  # fmt: skip
def test_a_part_is_never_rounded_to_all_or_to_nothing(value: float, half: float, text: str) -> None:
    assert part(value, half) == text


def test_how_it_was_counted_is_a_table_with_cells_where_it_was_not_so_in_all(run: ReportInput) -> None:
    seen = {"probe": "alignment", "nodes": ["vm-1", "vm-2"], "cells": [1, 2, 4, 5], "disks": ["vda"]}
    probes = [{**seen, "hook": "classic tracepoint", "why": "there is no /sys/kernel/btf/vmlinux"}]
    told = replace(run, summary=replace(run.summary, facts={"probes": probes}))
    *_, table = block_detail_tables(told.summary)
    assert table.columns == ("probe", "nodes", "disks", "hook", "why")
    assert table.rows == (
        ("alignment", "vm-1 and vm-2", "vda", "classic tracepoint", "there is no /sys/kernel/btf/vmlinux"),
    )
    assert "classic tracepoint" in render(told, "adoc")
    assert orjson.loads(render(told, "json"))["facts"]["probes"] == probes
    seen = {"probe": "alignment", "nodes": ["a"], "disks": []}
    probes = [{**seen, "cells": [1], "hook": "tp_btf"}, {**seen, "cells": [2, 4, 5], "hook": "classic tracepoint"}]
    *_, table = block_detail_tables(replace(run.summary, facts={"probes": probes}))
    assert table.columns[2] == "cells" and table.rows[0][2] == "fs=xfs-16k, load=storm"
