"""Every format renders every run; golden files hold what a person has looked at."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storlab.analysis.summary import Estimate, Summary
from storlab.base.errors import UserError
from storlab.report.formats import PRINTED, REPORTS, names, render
from storlab.report.model.input import ReportInput

from ..sample import sample, with_one_load
from ..samples import block_sample
from ..shown import text_of
from ..vm_sample import vm_sample

NOTHING = ReportInput(Summary("", "", 0.95, 0, None))


@pytest.mark.parametrize("name", names(REPORTS))
def test_every_format_gives_the_same_text_twice_without_chapters_that_a_run_does_not_have(name: str) -> None:
    given = with_one_load(sample())
    text = render(given, name)
    assert "ext4" in text and text == render(given, name)
    shown = text.partition("</style>")[2 if name == "html" else 0]
    assert not [absent for absent in ("aution", "After a power cut", "Conformance") if absent in shown]


@pytest.mark.parametrize("name", names(REPORTS))
def test_every_format_renders_a_run_of_which_nothing_is_known(name: str) -> None:
    assert render(NOTHING, name).endswith("\n")


def test_a_format_that_is_unknown_or_lacks_a_browser_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"'pdf'; choose one of text, md, html, csv, json, adoc"):
        render(sample(), "pdf")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match="apt-get install chromium"):
        PRINTED.render(sample())
    assert render(sample(), "markdown") == render(sample(), "md")


def test_the_terminals_report_does_not_wait_for_the_charts() -> None:
    code = (
        "import sys; from storlab.report.formats import render; from report.sample import sample;"
        "render(sample(), 'text'); slow = {'altair', 'vl_convert', 'jinja2', 'scipy'} & set(sys.modules);"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_asciidoc_report_names_the_load_of_each_metric() -> None:
    one = Estimate(1, {}, "log", "write.iops", "1/s", "higher", 8, 500, 500, None, None, None, None, 0.95)
    summary = Summary("", "write.iops", 0.95, 8, None, estimates=(one, replace(one, source="data")))
    text = render(ReportInput(summary), "adoc")
    assert [text.count(f"write.iops: {load}: ") for load in ("log", "data")] == [1, 1]


Golden = Callable[[str, str], None]


@pytest.mark.parametrize(("name", "make"), [("sample", sample), ("vm", vm_sample), ("block", block_sample)])
def test_a_report_is_as_its_golden_files(name: str, make: Callable[[], ReportInput], golden: Golden) -> None:
    brief, full = render(make(), "text"), text_of(make(), width=120, full=True)
    golden(f"{name}.txt", brief)
    golden(f"{name}-full.txt", full)
    for text, width in ((brief, 80), (full, 120), (text_of(make(), width=120), 120)):
        copied = " " * 4  # which is why no line of it is broken
        assert max(len(line) for line in text.split("\n") if not line.startswith(copied)) <= width


@pytest.mark.parametrize("form", ["md", "adoc", "csv"])
def test_the_other_formats_are_as_a_small_golden_file_has_them(form: str, golden: Golden) -> None:
    given = with_one_load(sample())
    whole = given.summary
    summary = replace(
        whole,
        estimates=tuple(each for each in whole.estimates if each.metric == "write.bandwidth"),
        comparisons=tuple(each for each in whole.comparisons if each.metric == "write.bandwidth"),
        by_node=tuple(each for each in whole.by_node if each.metric == "write.bandwidth"),
    )
    golden(f"small.{form}", render(replace(given, summary=summary), form))
