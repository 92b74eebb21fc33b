"""The text formats, as whole files that a person has looked at."""

from __future__ import annotations

from collections.abc import Callable

from storlab.report.formats import render
from storlab.report.formats.terminal import render_text

from ..sample import sample
from ..vm_sample import vm_sample

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
