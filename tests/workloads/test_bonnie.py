"""Options of the workload ``bonnie``, what it reads from Bonnie++, and how it names the ways in which that fails."""

from pathlib import Path
from typing import Any

import pytest

from storlab.base.errors import CommandFailed, DiskFull, ParseError, TimedOut
from storlab.measurements import Measurements
from storlab.nodes.process import ExitRecord
from storlab.tools.bonnie.importer import BonnieImporter
from storlab.workloads.base import ELAPSED
from storlab.workloads.bonnie import BonnieWorkload
from workloads import DONE, FAILED, LIMITED, ended, left

GOLDEN = Path(__file__).parent / "golden"
STDOUT = (GOLDEN / "bonnie.stdout").read_bytes()
MIB = 1024**2


def workload(**keys: Any) -> BonnieWorkload:
    return BonnieWorkload.model_validate({"size": "16M", "fast": True, "files": 1} | keys)


def parsed(raw: Path, record: ExitRecord = DONE, said: str = "", free: str = f"{10**9} 65536") -> Measurements:
    stdout = STDOUT if record.ok else b""
    return workload(chunk="4k").parse(left(raw, record, stdout=stdout, stderr=said, free=free))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "-s 16:8192:8192:5 -n 1:0:0:1 -f -z 7"),
        ({"fast": False}, "-s 16:8192:8192:5 -n 1:0:0:1 -f20 -z 7"),
        ({"fast": False, "per_character": "2M"}, "-s 16:8192:8192:5 -n 1:0:0:1 -f2 -z 7"),
        ({"size": 0}, "-s 0 -n 1:0:0:1 -f -z 7"),
        ({"files": 0, "size": "1G"}, "-s 1024:8192:8192:5 -n 0 -f -z 7"),
        (
            {"files": {"number": 2, "max": "8k", "min": 512, "directories": 4}},
            "-s 16:8192:8192:5 -n 2:8192:512:4 -f -z 7",
        ),
        ({"direct": True, "sync": True, "chunk": "1M"}, "-s 16:1048576:8192:5 -n 1:0:0:1 -f -D -b -z 7"),
        ({"seeks": 100, "seekers": 2}, "-s 16:8192:100:2 -n 1:0:0:1 -f -z 7"),
    ],
)
def test_options_become_those_of_bonnie(keys: dict[str, Any], words: str) -> None:
    assert " ".join(workload(**keys).arguments(7)) == f"-q -m storlab -r 0 {words}"


def test_metrics_are_named_as_the_importer_names_them_and_what_ended_too_soon_is_absent(tmp_path: Path) -> None:
    measured = parsed(tmp_path)
    (part,) = BonnieImporter().read(STDOUT, "x", {})
    imported = set(part.measured.metrics["metric"])
    assert "write.block.bandwidth" in imported
    assert set(measured.metrics["metric"]) == imported | {spec.name for spec in ELAPSED}
    assert part.measured.totals().items() <= measured.totals().items()
    measured = parsed(tmp_path)
    assert "read.block.bandwidth" not in measured.totals()
    (warning,) = measured.warnings
    assert warning.startswith("no figure for read.block, seek, ")
    facts = parsed(tmp_path).facts
    assert (facts["io_chunk_size"], facts["file_size"], facts["bonnie_version"]) == ("4096", "160M", "2.00a")


@pytest.mark.parametrize("reason", ["No such file or directory", "No space left on device", "Success"])
def test_a_block_that_was_cut_short_means_that_the_target_is_full(reason: str, tmp_path: Path) -> None:
    said = f"Can't write block.: {reason}\nCan't write block 1254.\n"
    with pytest.raises(DiskFull, match=r"target full: bonnie\+\+ writes 16M, and 5M was free \(bonnie\+\+: Can't"):
        parsed(tmp_path, FAILED, said, free=f"{5 * MIB} 3000")


@pytest.mark.parametrize("said", ["Can't write data.", "Can't create file 0bf4VF", "Can't write() - disk full?"])
def test_without_an_errno_what_was_free_before_tells(said: str, tmp_path: Path) -> None:
    after = f"{said}\nCleaning up test directory after error.\n"
    with pytest.raises(DiskFull, match=r"target full: bonnie\+\+ creates 1024 files, and 1000 inodes were free"):
        parsed(tmp_path, FAILED, after, free=f"{50 * MIB} 1000")
    with pytest.raises(CommandFailed, match=r"ended with status 1: Can't") as caught:
        parsed(tmp_path, FAILED, after, free=f"{50 * MIB} 3000")
    assert not isinstance(caught.value, DiskFull)


def test_an_io_error_is_not_a_full_target_and_other_ends_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"Can't write block\.: Input/output error"):
        parsed(tmp_path, FAILED, "Can't write block.: Input/output error\nCan't write block 3.\n", free="1 1")
    with pytest.raises(TimedOut, match="stopped at the time-out"):
        parsed(tmp_path, LIMITED)
    with pytest.raises(CommandFailed, match="ended with SIGABRT: free"):
        parsed(tmp_path, ended(None, "SIGABRT"), "free(): invalid next size (normal)\n")
    parsed(tmp_path)
    for printed, said in ((STDOUT + STDOUT, "holds 2 results"), (b"\xff\0rubbish\n", "is neither CSV nor a table")):
        (tmp_path / "stdout").write_bytes(printed)
        with pytest.raises(ParseError, match=said):
            workload().parse(tmp_path)
