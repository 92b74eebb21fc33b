from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from storlab.cli.console import Console
from storlab.cli.doctor import doctor, show, verdict
from storlab.doctor import host, kernel, runs, tracing, virtual, workloads
from storlab.doctor.machine import missing, ok, warn

FOUND = [
    ok("root", "Machine", "this is root"),
    warn("clock source", "Machine", "hpet: slow to read, so short latencies look longer", "echo tsc > /sys/x"),
    missing("a name longer than its column", "File systems", "this kernel has no such file system " * 4, "another one"),
]


def shown(width: int) -> str:
    stream = io.StringIO()
    show(FOUND, Console(file=stream, width=width))
    return stream.getvalue()


def test_every_line_but_the_last_fits_eighty_columns() -> None:
    assert max(len(line) for line in shown(80).splitlines()[:-1]) <= 80


def test_status_is_told_by_symbols_and_without_colours_where_there_is_no_terminal() -> None:
    text = shown(80)
    assert "\x1b" not in text
    assert [line[0] for line in text.splitlines() if line[:1] in "✓!✗" and line] == ["✓", "!", "✗"]


def test_a_remedy_stands_underneath_what_it_mends() -> None:
    lines = [line.strip() for line in shown(80).splitlines()]
    assert lines[lines.index("→ echo tsc > /sys/x") - 1].startswith("!  clock source")


def test_the_last_line_says_whether_the_shipped_study_can_run() -> None:
    group = "Shipped studies"
    assert verdict([ok("quick", group, "all cells")]) == "`storlab run quick` can run here."
    assert verdict([missing("quick", group, "fio is not installed")]).endswith("can't run here: fio is not installed.")
    assert "in part" in verdict([warn("quick", group, "4 of 6 cells can run: no xfs")])


def test_json_is_a_list_of_checks(capsys: pytest.CaptureFixture[str]) -> None:
    doctor(json=True)
    found = json.loads(capsys.readouterr().out)
    assert {tuple(check) for check in found} == {("name", "group", "status", "says", "remedy")}
    assert {check["status"] for check in found} <= {"ok", "warn", "missing"}
    assert len({(check["group"], check["name"]) for check in found}) == len(found)


def test_the_documentation_names_every_group() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/reference/doctor.md").read_text("utf-8")
    groups = {part.GROUP for part in (host, kernel, runs, tracing, virtual, workloads)}
    others = {kernel.FILESYSTEMS, kernel.NETWORKS, runs.STUDIES, workloads.OTHERS}
    assert {group for group in groups | others if f"`{group}`" not in text} == set()
