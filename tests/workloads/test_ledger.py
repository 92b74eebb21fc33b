"""The workload ledger: what it commits can be asked for, and whatever is taken from it is told."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import CommandFailed, ParseError, TimedOut
from storlab.nodes.process import ExitRecord
from storlab.workloads import ledger_program
from storlab.workloads.ledger import LedgerWorkload, read_commits
from storlab.workloads.ledger_program import Damage, Ledger, record, sequence_of, slot_of
from workloads import DONE, FAILED, LIMITED, left

COMMITS = ("append", "rename", "overwrite")


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
    argv = [sys.executable, "-I", ledger_program.__file__]
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
    lost = "commit 6 of 6 acknowledged ones is lost: there is"
    assert ledger.broken(6) == ("lost", f"{lost} an older one, 1, in its place")
    file.unlink()
    assert ledger.broken(6) == ("lost", f"{lost} no file")


def kind(damage: Damage | None) -> str | None:
    return damage and damage[0]


def overwritten(folder: Path, sequence: int, other: int, part: int = 1) -> None:
    """The page of one record, or its first half, is that of another."""
    slot = slot_of(sequence, 5)
    with (folder / "ledger" / "pages").open("r+b") as file:
        file.seek(slot * 4096)
        file.write(record(other, slot, 4096)[: 4096 // part])


def test_a_torn_page_is_lost_unless_it_was_written_elsewhere_before_and_an_old_one_is_a_lost_commit(
    folder: Path,
) -> None:
    ledger = committed(folder, "overwrite", 7)
    overwritten(folder, 7, 107, part=2)
    assert kind(ledger.broken(6)) == kind(ledger.broken(7)) == "torn"
    overwritten(folder, 7, 2)
    assert kind(ledger.broken(7)) == "lost"


def test_a_doublewrite_restores_the_page_that_was_being_written(folder: Path) -> None:
    ledger = committed(folder, "overwrite", 7, doublewrite=True)
    overwritten(folder, 7, 107, part=2)
    assert ledger.broken(7) is None
    overwritten(folder, 6, 106, part=2)
    assert kind(ledger.broken(7)) == "torn"


@given(st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 511), st.integers(1, 255))
def test_a_record_with_any_byte_changed_is_none(sequence: int, slot: int, at: int, change: int) -> None:
    data = bytearray(record(sequence, slot, 512))
    assert sequence_of(bytes(data), slot, 512) == sequence and sequence_of(bytes(data), slot + 1, 512) is None
    data[at] ^= change
    assert sequence_of(bytes(data), slot, 512) is None


def raw_of(tmp_path: Path, commits: object, ended: ExitRecord = DONE) -> Path:
    said = "OSError: [Errno 28] No space left on device\n"
    return left(tmp_path, ended, stderr=said, **{"commits.json": json.dumps(commits)})


def test_what_is_printed_is_a_commit_or_nothing_and_latencies_are_metrics(tmp_path: Path) -> None:
    latencies = [0.001] * 98 + [0.002, 0.010]
    found = LedgerWorkload().parse(raw_of(tmp_path, {"elapsed": 0.5, "latencies": latencies}))
    totals = found.totals()
    assert (totals["commit.count"], totals["commit.rate"], totals["commit.latency.max"]) == (100, 200.0, 0.010)
    found_at = [totals[f"commit.latency.{name}"] for name in ("p50", "p99", "mean")]
    assert found_at == pytest.approx([0.001, 0.002, 0.0011]) and found.histograms["count"].sum() == 100
    names = {spec.name for spec in LedgerWorkload().declares()}
    assert {*totals} <= names and {*found.histograms["metric"]} <= names
    ledger = LedgerWorkload()
    assert ledger.acknowledged(b"17") == 17
    for line in (b"", b"-1", b"1.5", b"x", b"9" * 40, "٣".encode()):
        assert ledger.acknowledged(line) is None
    assert LedgerWorkload().pages() is None


def test_a_ledger_that_failed_says_why_and_numbers_that_can_not_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"status 1: OSError.*No space left"):
        LedgerWorkload().parse(raw_of(tmp_path, {}, FAILED))
    with pytest.raises(TimedOut):
        LedgerWorkload().parse(raw_of(tmp_path, {}, LIMITED))

    for commits in (
        {},
        {"elapsed": 0, "latencies": [1]},
        {"elapsed": 1, "latencies": []},
        {"elapsed": 1, "latencies": [-1]},
    ):
        with pytest.raises(ParseError):
            LedgerWorkload().parse(raw_of(tmp_path, commits))
