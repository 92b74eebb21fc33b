"""Which tool wrote a file is told by its contents, for every file that there is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.odd_files import bounded
from importing import test_virtiofs_tests as virtiofs
from storlab.importing.signatures import HEAD, is_fio_log, signatures_of

TESTS = Path(__file__).parent.parent
IMPORTS = TESTS.parent / "examples" / "imports"
FILES = [
    *sorted((TESTS / "importing/golden").iterdir()),
    *(path for path in sorted(IMPORTS.iterdir()) if path.suffix != ".csv" or path.name == "elbencho.csv"),
    *sorted((TESTS / "formats/fio/golden").glob("*.json")),
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
    both = b"".join((TESTS / "importing/golden" / name).read_bytes() for name in names)
    assert kinds(both) == ["sysbench", "pgbench"]


@pytest.mark.parametrize(
    "piece", [b"\n", b"{\n", b"pgbench (a", b"TEST_NAME=\n", b"1,1,", b"a.a > ", b'"fio version" ', b" tod "]
)
def test_a_file_made_to_hold_it_up_does_not(piece: bytes) -> None:
    with bounded(20):
        signatures_of((b"pgbench (" + piece * HEAD)[:HEAD])
        signatures_of((piece * HEAD)[:HEAD])
