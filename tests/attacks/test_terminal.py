"""What a load, a study or a file says reaches a terminal, a page or a table as text, and never as an order to it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import time
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.studies import directory

COPY = "\x1b]52;c;Y3VybCBldmls\x07"  # puts words into the clipboard
CLEAR = "\x1b[2J\x1b[H"
TITLE = "\x9d0;owned\x9c"  # one byte each in Latin-1, two in UTF-8
REVERSED = "\u202egpj.exe\u202c"
ORDERS = COPY + CLEAR + TITLE + REVERSED
OBEYED = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[[0-9]*[ABCDGK]")
"""Colours, the cursor of a live display, and lines that are erased: what Storlab itself says to a terminal."""
FORMATS = ("text", "md", "html", "csv", "json", "adoc")


def on_a_terminal(lab: Laboratory, *arguments: str | Path) -> str:
    """All that a command writes to its terminal, both streams."""
    ours, theirs = pty.openpty()
    lab.environment |= {"TERM": "xterm-256color"}
    process = lab.start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data, deadline = b"", time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    data += os.read(ours, 65536)
                except OSError:  # EIO: nobody has it open any more
                    break
        assert process.wait(timeout=30) is not None
    finally:
        process.kill()
        os.close(ours)
    return data.decode(errors="replace")


def harmless(text: str) -> str:
    """What is left of it without Storlab's own orders. Fails where an order is left."""
    left = OWN.sub("", text)
    assert "\x1b" not in left, repr(left[max(0, left.index("\x1b") - 80) :][:200])
    assert not (found := OBEYED.search(left)), repr(left[max(0, found.start() - 80) :][:200])
    return left


def plain(text: str) -> None:
    assert "\x1b" not in text and not OBEYED.search(text), text


def hostile_load(lab: Laboratory, ending: int = 7) -> Path:
    orders = lab.folder / "orders"
    orders.write_text(f"{ORDERS}\n{ORDERS}last words{ORDERS}\n", "utf-8")
    script = f"cat {orders}; cat {orders} >&2; exit {ending}"
    return lab.study(directory(f"command = {{ argv = {json.dumps(['sh', '-c', script])} }}"))


def test_a_load_that_fails_cannot_order_the_terminal_of_a_run_or_of_its_reports(lab: Laboratory) -> None:
    shown_live = on_a_terminal(lab, "run", hostile_load(lab), "--out", lab.out, "--seed", "1")
    assert OWN.search(shown_live), "it knows that this is a terminal"
    live = harmless(shown_live)
    assert "status 7" in live and "last words" in live
    for command in ("report", "resume"):
        harmless(on_a_terminal(lab, command, lab.out))
    for name in FORMATS:
        shown = lab.storlab("report", lab.out, "--format", name)
        assert shown.status == 0, str(shown)
        plain(shown.stdout)
    plain((lab.out / "report.html").read_text("utf-8"))


def test_plain_lines_of_progress_and_json_hold_no_order_either(lab: Laboratory) -> None:
    study = hostile_load(lab)
    for number, options in enumerate(([], ["--quiet"], ["--json"]), start=1):
        ran = lab.storlab("run", study, "--out", lab.folder / f"run-{number}", "--seed", "1", *options)
        assert ran.status == 3, str(ran)
        plain(ran.stdout + ran.stderr)
        if "--json" in options:
            json.loads(ran.stdout)


def test_names_in_a_study_cannot_order_the_terminal_of_plan_list_or_errors(lab: Laboratory) -> None:
    written = json.dumps(ORDERS)  # TOML knows these escapes, too
    study = lab.folder / "study.toml"
    text = f'schema = 1\ntitle = {written}\ndescription = {written}\nscratch = "{lab.scratch}"\n'
    study.write_text(text + directory("command = { argv = ['true'] }"))
    harmless(on_a_terminal(lab, "plan", study))
    harmless(on_a_terminal(lab, "plan", study, "--json"))
    harmless(on_a_terminal(lab, "run", study, "--out", lab.out, "--seed", "1"))
    for mistake in (f"{written} = 1", f"primary = {written}", f"[workload.load]\ncommand = {{ {written} = 1 }}"):
        study.write_text(f'schema = 1\ntitle = "A"\n{mistake}\n')
        harmless(on_a_terminal(lab, "plan", study))
    odd = lab.folder / f"{CLEAR}.toml"
    for command in ("plan", "report", "clean"):
        harmless(on_a_terminal(lab, command, odd))
    for words in (["plan", "a", CLEAR], [CLEAR], ["plan", f"--{CLEAR}"], ["run", "a", "--rounds", CLEAR]):
        harmless(on_a_terminal(lab, *words))
    harmless(on_a_terminal(lab, "import", "csv", odd, "--out", lab.folder / "imported"))


def test_a_file_whose_names_are_orders_can_be_imported_reported_and_compared(lab: Laboratory) -> None:
    source = lab.folder / f"x{CLEAR}.csv"
    source.write_text("rate\n1000\n1001\n")
    harmless(on_a_terminal(lab, "import", "csv", source, "--value", "rate", "--out", lab.out))
    harmless(on_a_terminal(lab, "report", lab.out))
    harmless(on_a_terminal(lab, "compare", lab.out, lab.out))


@pytest.mark.parametrize("start", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "=cmd|'/C calc'!A0"])
def test_no_cell_of_a_csv_report_is_a_formula(lab: Laboratory, start: str) -> None:
    source = lab.folder / "rates.csv"
    source.write_text("rate\n1000\n1001\n")
    imported = lab.storlab("import", "csv", source, "--value", "rate", "--factor", f"level={start}", "--out", lab.out)
    assert imported.status == 0, str(imported)
    shown = lab.storlab("report", lab.out, "--format", "csv")
    cells = [cell for row in csv.reader(io.StringIO(shown.stdout)) for cell in row]
    assert f"'{start}" in cells
    assert start not in cells
