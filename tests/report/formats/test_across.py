"""Runs compared, in every format."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from analysis.run_data import run, two_factors, with_variance
from storlab.analysis.judging import parse_gate
from storlab.analysis.runs.across_runs import RunsCompared, compare_runs
from storlab.findings.runs import RunsDiffer
from storlab.report.formats import markdown, terminal
from storlab.report.formats.programs import render_comparison as render_json
from storlab.report.formats.programs import render_junit
from storlab.report.model.across import comparison_document, outcome

LOW = [100.0, 102.0, 98.0, 101.0, 99.0, 100.5, 99.5, 101.5, 98.5, 100.2, 99.8, 100.9]


def render_text(given: RunsCompared, width: int = 80) -> str:
    return terminal.render_text(comparison_document(given), width)


def render_markdown(given: RunsCompared) -> str:
    return markdown.render_comment(comparison_document(given))


FORMATS = {
    "compare.txt": render_text, "compare.md": render_markdown, "compare.json": render_json,
    "compare.xml": render_junit,
}  # fmt: skip


def sample(old: str = "old") -> RunsCompared:
    """Three cells: one that is worse, one that is not, and one that is missing; by runs that follow each other."""
    before = run(old, {"ext4": LOW, "xfs": LOW, "zfs": LOW})
    after = run("new", {"ext4": [0.9 * v for v in LOW], "xfs": [1.001 * v for v in LOW]})
    gates = [parse_gate("worse>3%")]
    return compare_runs([before, after], gates=gates, cautions=[RunsDiffer("Storlab", (("old", "1"), ("new", "2")))])


def single_trials() -> RunsCompared:
    """One trial a side, as two files of other people's tools give."""
    return compare_runs([with_variance("off", 5300.0, 2164.0), with_variance("on", 5370.0, 7358.0)])


def judged() -> RunsCompared:
    """Levels of one run, in two combinations, with every verdict but "worse"."""
    values = {
        ("ext4", "4k"): LOW, ("ext4", "64k"): LOW[::-1], ("xfs", "4k"): [2 * v for v in LOW],
        ("xfs", "64k"): [1.001 * v for v in LOW[::-1]],
        ("btrfs", "4k"): [v * (0.5 if n % 2 else 2) for n, v in enumerate(LOW)], ("btrfs", "64k"): LOW,
    }  # fmt: skip
    return compare_runs([two_factors("run", values)], by="fs", gates=[parse_gate("better>50%")])


OTHERS = {"compare-single.txt": single_trials, "compare-judged.txt": judged}


@pytest.mark.parametrize("name", [*FORMATS, *OTHERS])
def test_a_comparison_looks_like_the_golden_file(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, FORMATS[name](sample()) if name in FORMATS else render_text(OTHERS[name]()))


def test_junit_fails_what_hit_a_gate_and_skips_what_is_undecided_where_that_may_pass() -> None:
    root = Xml.fromstring(render_junit(sample()))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "3", "0")
    failed, passed, pooled, missing = root.findall(".//testcase")
    failure, unclear = failed.find("failure"), missing.find("failure")
    assert failure is not None and "differs from old by more than 3 %, for the worse" in str(failure.get("message"))
    assert "runs not interleaved" in str(failure.get("message"))
    assert passed.find("failure") is None and passed.find("skipped") is None
    assert pooled.find("failure") is not None and "all combinations pooled" in str(pooled.get("name"))
    assert unclear is not None and unclear.get("type") == "missing"
    assert "is in old and not in new" in str(unclear.get("message"))
    root = Xml.fromstring(render_junit(replace(sample(), allow_undecided=True)))
    assert (root.get("failures"), root.get("skipped")) == ("3", "0"), "what is missing never passes"
    found = compare_runs([run("old", {"x": LOW}), run("new", {"x": [v / 2 for v in LOW]})])
    root = Xml.fromstring(render_junit(found))
    assert (root.get("failures"), root.get("skipped")) == ("0", "1")


def test_markdown_and_json_begin_with_the_outcome() -> None:
    lines = render_markdown(sample()).splitlines()
    assert lines[2].startswith("**Failed: 2 of 4 comparisons hit a gate")
    assert any(line.startswith("> **Caution:** Not everything here was interleaved") for line in lines)
    assert json.loads(render_json(sample()))["failed"] is True
    pair = [with_variance("off", 5300.0, 2164.0), with_variance("on", 5370.0, 7358.0)]
    assert outcome(compare_runs(pair, gates=[parse_gate("worse>3%")])).startswith(
        "Not passed: no gate was hit, but 1 of 1"
    )


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=30).filter(lambda name: name != "new" and name.isprintable()))
def test_no_name_of_a_run_breaks_xml_or_the_markdown_table(name: str) -> None:
    found = sample(name)
    Xml.fromstring(render_junit(found).encode())
    rows = [line for line in render_markdown(found).splitlines() if line.startswith("|")]
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert max(map(cell_len, render_text(found, 60).splitlines())) <= 60


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminals_report_keeps_to_its_columns_and_breaks_no_name(width: int) -> None:
    names = [f"a-set-up-with-a-long-name-{n}" for n in range(12)]
    before = run("old", dict.fromkeys(names, LOW))
    lines = render_text(compare_runs([before, run("new", dict.fromkeys(names, LOW))]), width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(name in line for line in lines) for name in names)


def test_of_very_many_answers_the_sentences_are_for_what_must_not_be_overlooked() -> None:
    cells = {f"cell{n}": LOW for n in range(40)}
    worse = cells | {"cell7": [v / 2 for v in LOW]}
    text = render_text(compare_runs([run("old", cells), run("new", worse)], gates=[parse_gate("worse>20%")]))
    said = text[: text.index("Compared")]
    assert said.count("÷") == 2, "the pooled one and the one that hit the gate"
    assert "fs=cell7" in said
    assert text.count("\nnew ") == 41


def test_the_variance_factor_is_told_by_name_in_every_format() -> None:
    found = compare_runs([with_variance("off", 100.0, 1.0), with_variance("on", 101.0, 3.4)])
    said = "on varies more within trials: 3.40× the variance of off."
    for renderer in (render_text, render_markdown, render_junit):
        assert said in renderer(found)
    assert json.loads(render_json(found))["variability"][0]["factor"] == pytest.approx(3.4)
    assert re.search(r"variance factor +– +3.40× larger", render_text(found))
