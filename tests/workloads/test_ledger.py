"""The workload ledger: what it commits can be asked for, and whatever is taken from it is told."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from storlab.errors import CommandFailed, ParseError, TimedOut
from storlab.nodes.process import ExitRecord
from storlab.workloads.base import exit_bytes
from storlab.workloads.ledger import program
from storlab.workloads.ledger.program import Damage, Ledger, record, sequence_of, slot_of
from storlab.workloads.ledger.results import read_commits
from storlab.workloads.ledger.workload import LedgerWorkload

COMMITS = ("append", "rename", "overwrite")
DONE = ExitRecord(("python3",), 0, None, False, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0)
FAILED = ExitRecord(("python3",), 1, None, False, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0)
LIMITED = ExitRecord(("python3",), None, "SIGTERM", True, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0)


@pytest.fixture
def folder() -> Any:
    """On a disk: tmpfs takes no direct I/O before Linux 6.6."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


def asked(folder: Path, commit: str, **more: Any) -> dict[str, Any]:
    size = 4096 if commit == "overwrite" else 512
    return {"root": str(folder / "ledger"), "commit": commit, "size": size, "slots": 5, "doublewrite": False, **more}


def committed(folder: Path, commit: str, number: int, **more: Any) -> Ledger:
    ledger = Ledger(**asked(folder, commit, **more))
    make = ledger.begin()
    for sequence in range(1, number + 1):
        make(sequence)
    return ledger


@pytest.mark.parametrize("commit", COMMITS)
def test_the_program_prints_each_commit_and_finds_them_all(folder: Path, commit: str) -> None:
    argv = [sys.executable, "-I", program.__file__]
    options = asked(folder, commit, runtime=0.2)
    wrote = subprocess.run([*argv, "write", json.dumps(options)], capture_output=True, cwd=folder, check=True)
    numbers = [int(line) for line in wrote.stdout.splitlines()]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(read_commits((folder / "commits.json").read_bytes()).latencies) == len(numbers)
    for last, found in ((len(numbers), None), (len(numbers) + 1, "lost")):
        looked = json.dumps(options | {"acknowledged": last})
        ran = subprocess.run([*argv, "verify", looked], capture_output=True, check=True)
        damage = json.loads(ran.stdout)
        assert (damage and damage[0]) == found


@pytest.mark.parametrize("commit", COMMITS)
def test_a_ledger_of_which_nothing_was_acknowledged_may_be_gone(folder: Path, commit: str) -> None:
    ledger = Ledger(**asked(folder, commit))
    assert ledger.broken(0) is None
    assert ledger.broken(3) == ("lost", "the ledger is gone, and 3 commits were acknowledged")


def test_an_append_that_was_not_acknowledged_may_be_half_there(folder: Path) -> None:
    ledger = committed(folder, "append", 4)
    file = folder / "ledger" / "records"
    file.write_bytes(file.read_bytes()[: 3 * 512 + 100])
    assert ledger.broken(3) is None
    assert ledger.broken(4) == ("lost", "commit 4 of 4 acknowledged ones is lost: there is half of it")


def test_a_name_that_leads_to_half_a_record_is_torn(folder: Path) -> None:
    ledger = committed(folder, "rename", 6)
    file = folder / "ledger" / f"slot-{slot_of(6, 5)}"
    file.write_bytes(file.read_bytes()[:-1])
    for acknowledged in (1, 6):
        assert kind(ledger.broken(acknowledged)) == "torn"
    file.write_bytes(record(1, slot_of(6, 5), 512))
    assert ledger.broken(5) is None
    assert ledger.broken(6) == (
        "lost",
        "commit 6 of 6 acknowledged ones is lost: there is an older one, 1, in its place",
    )
    file.unlink()
    assert ledger.broken(6) == ("lost", "commit 6 of 6 acknowledged ones is lost: there is no file")


def kind(damage: Damage | None) -> str | None:
    return damage and damage[0]


def torn(folder: Path, ledger: Ledger, sequence: int) -> None:
    """The first half of one page is that of another record."""
    slot = slot_of(sequence, ledger.slots)
    with (folder / "ledger" / "pages").open("r+b") as file:
        file.seek(slot * ledger.size)
        file.write(record(sequence + 100, slot, ledger.size)[: ledger.size // 2])


def test_a_torn_page_is_lost_unless_it_was_written_elsewhere_before(folder: Path) -> None:
    ledger = committed(folder, "overwrite", 7)
    torn(folder, ledger, 7)
    assert kind(ledger.broken(6)) == kind(ledger.broken(7)) == "torn"


def test_a_doublewrite_restores_the_page_that_was_being_written(folder: Path) -> None:
    ledger = committed(folder, "overwrite", 7, doublewrite=True)
    torn(folder, ledger, 7)
    assert ledger.broken(7) is None
    torn(folder, ledger, 6)
    assert kind(ledger.broken(7)) == "torn"


def test_an_old_page_is_a_lost_commit(folder: Path) -> None:
    ledger = committed(folder, "overwrite", 7)
    slot = slot_of(7, 5)
    with (folder / "ledger" / "pages").open("r+b") as file:
        file.seek(slot * 4096)
        file.write(record(2, slot, 4096))
    assert kind(ledger.broken(7)) == "lost"


@given(st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 511), st.integers(1, 255))
def test_a_record_with_any_byte_changed_is_none(sequence: int, slot: int, at: int, change: int) -> None:
    data = bytearray(record(sequence, slot, 512))
    assert sequence_of(bytes(data), slot, 512) == sequence
    assert sequence_of(bytes(data), slot + 1, 512) is None
    data[at] ^= change
    assert sequence_of(bytes(data), slot, 512) is None


def test_what_is_printed_is_a_commit_or_nothing() -> None:
    ledger = LedgerWorkload()
    assert ledger.acknowledged(b"17") == 17
    for line in (b"", b"-1", b"1.5", b"x", b"9" * 40, "٣".encode()):
        assert ledger.acknowledged(line) is None


def test_only_what_can_be_protected_is() -> None:
    with pytest.raises(ValidationError, match="doublewrite protects pages that are overwritten"):
        LedgerWorkload(doublewrite=True)
    with pytest.raises(ValidationError, match="pages of 4k or more"):
        LedgerWorkload.model_validate({"commit": "overwrite", "record_size": "512"})
    assert LedgerWorkload().pages() is None


def raw_of(tmp_path: Path, commits: object, ended: ExitRecord = DONE) -> Path:
    (tmp_path / "exit.json").write_bytes(exit_bytes(ended))
    (tmp_path / "commits.json").write_text(json.dumps(commits))
    (tmp_path / "stderr").write_text("OSError: [Errno 28] No space left on device\n")
    return tmp_path


def test_latencies_become_metrics(tmp_path: Path) -> None:
    latencies = [0.001] * 98 + [0.002, 0.010]
    found = LedgerWorkload().parse(raw_of(tmp_path, {"elapsed": 0.5, "latencies": latencies}))
    totals = found.totals()
    assert totals["commit.count"] == 100
    assert totals["commit.rate"] == 200.0
    assert totals["commit.latency.max"] == 0.010
    assert totals["commit.latency.p50"] == pytest.approx(0.001)
    assert totals["commit.latency.p99"] == pytest.approx(0.002)
    assert totals["commit.latency.mean"] == pytest.approx(0.0011)
    assert found.histograms["count"].sum() == 100
    names = {spec.name for spec in LedgerWorkload().declares()}
    assert {*totals} <= names
    assert {*found.histograms["metric"]} <= names


def test_a_ledger_that_failed_says_why(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"status 1: OSError.*No space left"):
        LedgerWorkload().parse(raw_of(tmp_path, {}, FAILED))
    with pytest.raises(TimedOut):
        LedgerWorkload().parse(raw_of(tmp_path, {}, LIMITED))


@pytest.mark.parametrize(
    "commits",
    [{}, {"elapsed": 0, "latencies": [1]}, {"elapsed": 1, "latencies": []}, {"elapsed": 1, "latencies": [-1]}],
)
def test_numbers_that_can_not_be_are_refused(tmp_path: Path, commits: object) -> None:
    with pytest.raises(ParseError):
        LedgerWorkload().parse(raw_of(tmp_path, commits))
