"""One run that has everything: every section of its report is in every format."""

import html
from dataclasses import replace

import polars as pl
import pytest

from storlab.analysis.data import Line, Step, Sweep
from storlab.probes.stacks import Box
from storlab.report.document import Section
from storlab.report.formats.adoc import render_adoc
from storlab.report.formats.html import render_html
from storlab.report.formats.markdown import render_markdown
from storlab.report.formats.programs import data, render_document
from storlab.report.formats.terminal import render_text
from storlab.report.model.input import CpuProfile, ReportInput
from storlab.report.sections import page_document, report_document

from .model.test_chapters import ALL, CUTS, EFFECTS, PACKETS, with_why
from .model.test_variability import FINE, distribution, window
from .samples import block_sample, series_sample
from .vm_sample import ROUNDS, vm_sample

SECTIONS = [
    "answer", "sweeps", "comparisons", "claims", "absent", "steady", "why", "measured", "power-cuts", "conformance",
    "nodes", "block", "effects", "time", "variability", "latency", "cpus", "further", "probes", "facts", "reproduce",
    "method",
]  # fmt: skip


def everything() -> ReportInput:
    run, block, pair = vm_sample(), block_sample().summary, series_sample()
    summary = run.summary
    cells = [replace(cell, status="partly failed", failed=1) if cell.cell == 1 else cell for cell in summary.cells]
    sizes = (Step("512", 512.0, 6), Step("4k", 4096.0, 1))
    more = replace(
        summary, cells=tuple(cells), claims=ALL, effects=(EFFECTS,), block_io=block.block_io,
        steady=(window(1, 1e6, 0.1, 0.1, steady=True),), distributions=(distribution(1, FINE),),
        comparisons=(*summary.comparisons, with_why()), sweeps=(Sweep("bs", "B", (Line({"backing": "zvol"}, sizes),)),),
    )  # fmt: skip
    cpus = CpuProfile(1, {"backing": "zvol"}, "host", (Box("fio", "command", 0, 0.0, 1.0),))
    named = {"source": pl.lit("load"), "metric": pl.lit("write.bandwidth"), "unit": pl.lit("B/s")}
    found = pl.concat([pair.findings] * ROUNDS * 3)  # of most of its trials
    return replace(
        run, summary=more, power_cuts=CUTS, packets=(PACKETS,), profiles=(cpus,),
        series=pair.series.with_columns(**named), findings=found.with_columns(**named),
    )  # fmt: skip


@pytest.fixture(scope="module")
def run() -> ReportInput:
    return everything()


def titles(sections: tuple[Section, ...]) -> list[str]:
    return [section.title for section in sections if section.titled]


def test_a_run_that_has_everything_has_every_section(run: ReportInput) -> None:
    assert [section.id for section in report_document(run).sections] == SECTIONS
    assert [section.id for section in page_document(run).sections] == SECTIONS


def test_every_section_is_in_every_format(run: ReportInput) -> None:
    document = report_document(run)
    wanted = titles(document.sections)
    lines = {
        "text": [line.rstrip("─ ") for line in render_text(document, 120, full=True).splitlines()],
        "md": [line.removeprefix("## ") for line in render_markdown(document).splitlines()],
        "adoc": [line.removeprefix("== ") for line in render_adoc(document).splitlines()],
    }
    for form, found in lines.items():
        assert [title for title in wanted if title not in found] == [], form
    page = html.unescape(render_html(page_document(run)))
    assert [each for each in SECTIONS if f'<section id="{each}"' not in page] == []
    assert [each["id"] for each in data(document)["sections"]] == SECTIONS  # type: ignore[attr-defined]
    assert all(title in render_document(document) for title in wanted)
