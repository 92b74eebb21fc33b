"""Results of other tools that people have: which tool it was is told, and figures are those that were printed."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attacks.odd_files import bounded
from formats.fio.samples import GOLDEN as OF_FIO
from storlab.base.errors import ParseError
from storlab.tools.importer import Part
from storlab.tools.kinds import HEAD, is_fio_log, signatures_of
from study.program import call

from . import GOLDEN, read
from . import test_virtiofs_tests as virtiofs

RIGHT: dict[str, list[dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "right.toml").read_text())
PASSED_ON: dict[str, Callable[[bytes], bytes]] = {
    "quoted": lambda line: b"> " + line,
    "quoted twice": lambda line: b">>" + line,
    "indented": lambda line: b"    " + line if line.strip() else line,
    "with time stamps": lambda line: b"2024-03-01T12:00:00.1234567Z " + line,
    "by stern": lambda line: b"\x1b[36mfio-7d9c\x1b[0m \x1b[36mload\x1b[0m " + line,
    "by syslog": lambda line: b"Mar  1 12:00:00 host run[12]: " + line,
    "coloured": lambda line: b"\x1b[32m" + line + b"\x1b[0m\r",
}


def parts_of(name: str, text: bytes) -> list[Part]:
    kind = name.partition("-")[0]
    assert kinds(text) == [kind]
    return read(kind, text)


@pytest.mark.parametrize("name", RIGHT)
def test_results_that_people_have_are_read_as_they_were_printed(name: str) -> None:
    for part, run in zip(parts_of(name, (GOLDEN / name).read_bytes()), RIGHT[name], strict=True):
        right = dict(run)
        said = " ".join((*part.measured.warnings, part.reason or ""))
        told = {**part.measured.facts, **part.levels, **part.traits, "status": part.status, "started": part.started}
        assert right.pop("says", "") in said and part.status == right.pop("status", "done")
        totals = part.measured.totals()
        assert not totals.keys() & set(right.pop("lacks", ()))
        for of, value in right.items():
            assert totals[of] == pytest.approx(value, rel=1e-6) if of in totals else told[of] == value, of


REFUSED = [json.loads(line) for line in (Path(__file__).parent / "cases/refused.jsonl").read_text().splitlines()]
"""Each: the importer; a golden file with what is replaced in it by what, or no file and a text; and what is said."""


@pytest.mark.parametrize(("kind", "name", "old", "new", "says"), REFUSED, ids=lambda each: ascii(each)[:40])
def test_what_is_no_result_of_a_tool_or_damaged_is_refused(kind: str, name: str, old: str, new: str, says: str) -> None:
    sound = (GOLDEN / name).read_text("latin-1") if name else ""
    text = sound.replace(old, new) if name else new
    assert not name or text != sound
    with pytest.raises(ParseError) as refused:
        read(kind, text.encode("latin-1"))
    assert says in str(refused.value) and str(refused.value).startswith("x:")


@pytest.mark.parametrize("way", PASSED_ON)
@pytest.mark.parametrize(
    "name", [name for name in RIGHT if not name.endswith((".log", ".csv")) and name != "bonnie-quoted.txt"]
)
def test_in_whatever_way_text_was_passed_on_it_says_the_same(name: str, way: str) -> None:
    text = (GOLDEN / name).read_bytes()
    passed_on = parts_of(name, b"\n".join(map(PASSED_ON[way], text.split(b"\n"))))
    for part, as_it_was in zip(passed_on, parts_of(name, text), strict=True):
        assert (part.levels, part.traits, part.started) == (as_it_was.levels, as_it_was.traits, as_it_was.started)
        assert part.measured.totals() == as_it_was.measured.totals()
        assert part.measured.series.equals(as_it_was.measured.series)


def test_of_a_mail_that_answers_another_both_runs_count() -> None:
    text = (GOLDEN / "sysbench-0.5.txt").read_bytes()
    quoted = b"".join(b"> " + line for line in text.splitlines(keepends=True))
    assert len(parts_of("sysbench-mail.txt", b"You wrote:\n" + quoted + b"\nHere I see:\n" + text)) == 2


@pytest.mark.parametrize(
    ("kind", "name", "factor", "says"),
    [
        ("sysbench", "sysbench-threads.txt", "threads=8", "trial 1 of {} itself says threads = 1, and not 8"),
        ("pgbench", "pgbench-17.txt", "clients=many", "{} itself says clients = 16, and not many"),
        ("vdbench", "vdbench-one-hour.txt", "elapsed=60", "itself says elapsed = 3600, and not 60"),
        ("elbencho", "elbencho-start-and-end.txt", "block-size=1M", "itself says block size = 64k, and not 1M"),
        ("bonnie", "bonnie-1.96-files.txt", "num_files=16", "itself says num_files = 60, and not 16"),
        ("elbencho", "elbencho-start-and-end.txt", "block_size=65536", ""),
        ("pgbench", "pgbench-17.txt", "duration=30s", ""),
    ],
)
def test_a_factor_that_contradicts_what_files_say_of_themselves_is_refused(
    kind: str, name: str, factor: str, says: str, tmp_path: Path
) -> None:
    ran = call("import", kind, str(GOLDEN / name), "--factor", factor, "--out", str(tmp_path / "run"))
    assert ran.status == (2 if says else 0) and says.format(GOLDEN / name) in ran.message, ran.message


def test_runs_that_say_other_settings_are_other_cells_and_other_versions_are_named(tmp_path: Path) -> None:
    ran = call("import", "pgbench", str(GOLDEN / "pgbench-durations.md"), "--out", str(tmp_path / "run"))
    assert "3 trials of 2 cells" in ran.output, ran.message
    assert (
        "Rounds of file = pgbench-durations, duration = 300 s differ in their heading (Multi AZ, Aurora)" in ran.message
    )
    new = tmp_path / "new.txt"
    new.write_bytes((GOLDEN / "pgbench-17.txt").read_bytes().replace(b"17.2", b"18.1"))
    files = (str(GOLDEN / "pgbench-17.txt"), str(new), "--label", "a", "--label", "a")
    ran = call("import", "pgbench", *files, "--out", str(tmp_path / "versions"))
    assert "Rounds of file = a differ in their version (17.2, 18.1)" in ran.message, ran.output


IMPORTS = Path(__file__).parents[2] / "examples" / "imports"
FILES = [
    *sorted((GOLDEN).iterdir()),
    *(path for path in sorted(IMPORTS.iterdir()) if path.suffix != ".csv" or path.name == "elbencho.csv"),
    *sorted(OF_FIO.glob("*.json")),
]
KINDS = {"slow": "pcap", "pgbench_log.71": "pgbench", "pgbench_log": "pgbench"}


def kinds(head: bytes) -> list[str]:
    return [signature.kind for signature in signatures_of(head[:HEAD])]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_a_file_is_of_its_tool_and_of_no_other(path: Path) -> None:
    named = path.stem.partition("-")[0]
    assert kinds(path.read_bytes()) == [KINDS.get(named, named)]


def test_a_table_is_one_where_nothing_else_is_and_two_tools_in_one_file_are_both_named() -> None:
    terse = virtiofs.terse("a", read=(4096, 1024))
    assert kinds(terse.encode()) == ["fio"]
    raw = virtiofs.raw_file("none", [virtiofs.ran("randread-psync", terse)])
    assert kinds(raw.encode()) == ["virtiofs-tests"]
    assert (kinds((IMPORTS / "table.csv").read_bytes()), kinds(b"name;rate\nxfs;1,5\n")) == (["csv"], ["csv"])
    assert kinds(b"50003, 5000, 0, 4096, 0, 0\n50004, 7000, 1, 4096, 0, 0\n") == []
    assert is_fio_log(b"50003, 5000, 0, 4096, 0, 0\n50004, 7000, 1, 4096, 0, 0\n")
    assert kinds(b"1,2\n3,4\n") == []  # nothing says what these are
    assert (kinds(b"hello, world\n"), kinds(b"")) == ([], [])
    names = ("sysbench-rate.txt", "pgbench-rate.txt")
    both = b"".join((GOLDEN / name).read_bytes() for name in names)
    assert kinds(both) == ["sysbench", "pgbench"]


@pytest.mark.parametrize(
    "piece", [b"\n", b"{\n", b"pgbench (a", b"TEST_NAME=\n", b"1,1,", b"a.a > ", b'"fio version" ', b" tod "]
)
def test_a_file_made_to_hold_it_up_does_not(piece: bytes) -> None:
    with bounded(20):
        signatures_of((b"pgbench (" + piece * HEAD)[:HEAD])
        signatures_of((piece * HEAD)[:HEAD])
