"""Results of other tools that people have: figures are those that were printed, in whatever way they were passed on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storlab.importing.importer import Part
from storlab.importing.registry import importer_of
from storlab.importing.signatures import HEAD, signatures_of
from study.program import call

GOLDEN = Path(__file__).parent / "golden"
RIGHT: dict[str, list[dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "right.toml").read_text())
PASSED_ON: dict[str, Callable[[bytes], bytes]] = {
    "quoted": lambda line: b"> " + line,
    "quoted twice": lambda line: b">>" + line,
    "indented": lambda line: b"    " + line if line.strip() else line,
    "with time stamps": lambda line: b"2024-03-01T12:00:00.1234567Z " + line,
    "by syslog": lambda line: b"Mar  1 12:00:00 host run[12]: " + line,
    "coloured": lambda line: b"\x1b[32m" + line + b"\x1b[0m\r",
}


def parts_of(name: str, text: bytes) -> list[Part]:
    kind = name.partition("-")[0]
    assert [signature.kind for signature in signatures_of(text[:HEAD])] == [kind]
    return list(importer_of(kind).read(text, name, {}))


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
