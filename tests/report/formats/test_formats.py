"""Every format renders every run; golden files hold what a person has looked at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storlab.analysis.summary import Estimate, Summary
from storlab.errors import UserError
from storlab.report.formats import REPORTS, names, render
from storlab.report.formats.pdf import render_pdf
from storlab.report.formats.terminal import render_text
from storlab.report.model.input import ReportInput

from ..sample import sample
from ..vm_sample import vm_sample

NOTHING = ReportInput(Summary("", "", 0.95, 0, ""))


@pytest.mark.parametrize("name", names(REPORTS))
def test_every_format_renders_the_sample(name: str) -> None:
    assert "ext4" in render(sample(), name)


@pytest.mark.parametrize("name", names(REPORTS))
def test_every_format_renders_a_run_of_which_nothing_is_known(name: str) -> None:
    assert render(NOTHING, name).endswith("\n")


@pytest.mark.parametrize("name", names(REPORTS))
def test_a_format_gives_the_same_text_twice(name: str) -> None:
    assert render(sample(), name) == render(sample(), name)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"'pdf'; choose one of text, md, html, csv, json, adoc"):
        render(sample(), "pdf")


def test_the_terminals_report_does_not_wait_for_the_charts() -> None:
    code = (
        "import sys; from storlab.report.formats import render; from tests.report.sample import sample;"
        "render(sample(), 'text'); slow = {'altair', 'vl_convert', 'jinja2', 'scipy'} & set(sys.modules);"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_markdown_has_two_names() -> None:
    assert render(sample(), "markdown") == render(sample(), "md")


def test_the_asciidoc_report_names_the_load_of_each_metric() -> None:
    one = Estimate(1, {}, "log", "write.iops", "1/s", "higher", 8, 500, 500, None, None, None, None, 0.95)
    summary = Summary("", "write.iops", 0.95, 8, "", estimates=(one, replace(one, source="data")))
    text = render(ReportInput(summary), "adoc")
    assert [text.count(f"write.iops: {load}\n\nall nodes together") for load in ("log", "data")] == [1, 1]


Golden = Callable[[str, str], None]


def test_the_terminals_report_in_80_columns(golden: Golden) -> None:
    text = render(sample(), "text")
    golden("sample.txt", text)
    assert max(map(len, text.split("\n"))) <= 80


def test_the_terminals_report_in_120_columns(golden: Golden) -> None:
    text = render_text(sample(), width=120)
    golden("sample-120.txt", text)
    assert max(map(len, text.split("\n"))) <= 120


def test_the_markdown_report(golden: Golden) -> None:
    golden("sample.md", render(sample(), "md"))


def test_the_asciidoc_report(golden: Golden) -> None:
    golden("sample.adoc", render(sample(), "adoc"))


def test_the_csv_report(golden: Golden) -> None:
    golden("sample.csv", render(sample(), "csv"))


def test_the_terminals_report_on_virtual_machines_in_80_columns(golden: Golden) -> None:
    text = render(vm_sample(), "text")
    golden("vm.txt", text)
    assert max(map(len, text.split("\n"))) <= 80


def test_the_terminals_report_on_virtual_machines_in_120_columns(golden: Golden) -> None:
    text = render_text(vm_sample(), width=120)
    golden("vm-120.txt", text)
    assert max(map(len, text.split("\n"))) <= 120


def test_the_markdown_report_on_virtual_machines(golden: Golden) -> None:
    golden("vm.md", render(vm_sample(), "md"))


def test_the_asciidoc_report_on_virtual_machines(golden: Golden) -> None:
    golden("vm.adoc", render(vm_sample(), "adoc"))


def test_without_a_browser_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match="apt-get install chromium"):
        render_pdf(sample())
