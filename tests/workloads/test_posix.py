"""The workload posix: its checks here, on file systems that lie, and what is read of what they print."""

import errno
import faulthandler
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.base.errors import CommandFailed, ParseError, TimedOut
from storlab.nodes.process import ExitRecord
from storlab.workloads.posix.checks import __main__ as checks
from storlab.workloads.posix.checks.table import CHECKS
from storlab.workloads.posix.results import read_checks
from storlab.workloads.posix.workload import PosixWorkload, program
from workloads import ended, left

ASKED = ("fsync", "flock", "tmpfile")
ARGV = ("python3", "-I", "posix.pyz", "/mnt/posix", "15", *ASKED)
DONE, KILLED = ended(argv=ARGV), ended(None, "SIGKILL", argv=ARGV)
LIMITED = ended(None, "SIGTERM", True, ARGV)
LIMIT = 60.0  # s: this machine may be busy


def looked(root: Path, *names: str, limit: float = LIMIT) -> dict[str, tuple[str, str]]:
    """What the program that is sent to nodes says of a directory."""
    file = root.parent / "checks.pyz"
    file.write_bytes(program())
    argv = [sys.executable, "-I", str(file), str(root), str(limit), *names]
    ended = subprocess.run(argv, capture_output=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, b""), ended
    found = read_checks(ended.stdout, names or tuple(CHECKS))
    return {check.check: (check.outcome, check.reason) for check in found}


def made(check: Callable[[], str | None], folder: Path, limit: float = LIMIT) -> tuple[str, str]:
    return checks.made(check, str(folder), limit)


@pytest.mark.needs("root")  # which alone gives files away
def test_a_directory_of_linux_passes_all_and_nothing_is_left(tmp_path: Path) -> None:
    root = tmp_path / "checked"
    found = looked(root)
    # What file systems of this machine may lack, by statx(2), fallocate(2), xattr(7) and the version of the kernel.
    may_lack = {"birth-time", "zero-range", "punch-hole", "fallocate", "xattr-user", "acl-access", "acl-default"}
    may_lack |= {"tmpfile", "direct-io", "rename-exchange"}
    assert {name: said for name, said in found.items() if said[0] != "pass" and name not in may_lack} == {}
    assert {name: said for name, said in found.items() if said[0] == "fail"} == {} and not root.exists()


@pytest.mark.parametrize(
    ("name", "call", "number"),
    [
        ("hard-link", "link", errno.EPERM), ("symbolic-link", "symlink", errno.EPERM),
        ("xattr-user", "setxattr", errno.EOPNOTSUPP), ("acl-access", "setxattr", errno.EOPNOTSUPP),
        ("tmpfile", "open", errno.EISDIR), ("direct-io", "open", errno.EINVAL),
        ("seek-data-hole", "lseek", errno.EINVAL), ("fsync-directory", "fsync", errno.EINVAL),
        ("offsets-64-bit", "pwrite", errno.EFBIG), ("fifo", "mkfifo", errno.EPERM),
    ],
)  # fmt: skip
@pytest.mark.parametrize("documented", [True, False])
def test_documented_errors_mean_unsupported_and_others_mean_that_it_failed(
    name: str, call: str, number: int, documented: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = number if documented else errno.EIO

    def refuses(*arguments: Any, **keys: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuses)
    outcome, reason = made(CHECKS[name], tmp_path / "folder")
    assert outcome == ("unsupported" if documented else "fail") and reason.endswith(f": {errno.errorcode[number]}")


def _copy_over(old: str, new: str) -> None:
    shutil.copyfile(old, new)
    Path(old).unlink()


def _touch(*arguments: Any, **keys: Any) -> None:
    """Says that it has done something."""


_open, _pread, _listdir = os.open, os.pread, os.listdir
LIES: dict[str, tuple[Any, str, Any]] = {
    "rename-over-open": (os, "rename", _copy_over),
    "rename-keeps-inode": (os, "rename", _copy_over),
    "hard-link": (os, "link", shutil.copyfile),
    "symbolic-link": (os, "symlink", lambda target, name: Path(name).write_text("here")),
    "append-atomic": (os, "open", lambda name, flags, *mode: _open(name, flags & ~os.O_APPEND, *mode)),
    "exclusive-create": (os, "open", lambda name, flags, *mode: _open(name, flags & ~os.O_EXCL, *mode)),
    "lock-records": (fcntl, "lockf", _touch),
    "lock-wait": (fcntl, "lockf", _touch),
    "lock-open-file": (fcntl, "fcntl", _touch),
    "flock": (fcntl, "flock", _touch),
    "mmap-store-then-read": (os, "pread", lambda *arguments: b"0"),
    "mmap-write-then-load": (os, "pwrite", _touch),
    "mode-bits": (os, "chmod", _touch),
    "times-nanoseconds": (os, "utime", _touch),
    "acl-access": (os, "setxattr", _touch),
    "xattr-user": (os, "removexattr", _touch),
    "truncate": (os, "truncate", _touch),
    "offsets-64-bit": (os, "pwrite", lambda file, data, at: os.write(file, data)),
    "long-names": (os, "listdir", lambda folder: [name[:200] for name in _listdir(folder)]),
    "remove-while-listing": (os, "unlink", _touch),
}
"""Where a call lies, and what it does instead."""


@pytest.mark.parametrize("name", LIES)
def test_a_file_system_that_lies_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, call, instead = LIES[name]
    monkeypatch.setattr(where, call, instead)
    outcome, reason = made(CHECKS[name], tmp_path / "folder")
    assert outcome == "fail", (outcome, reason)
    assert reason


def test_a_time_that_is_kept_coarsely_is_unsupported_with_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda name, ns: utime(name, ns=tuple(each // 100 * 100 for each in ns)))
    assert made(CHECKS["times-nanoseconds"], tmp_path / "folder") == ("unsupported", "atime is kept in units of 100 ns")


def test_a_check_that_hangs_or_that_a_signal_ends_has_failed_and_its_process_is_gone(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def hangs() -> None:
        pid.write_text(str(os.getpid()))
        signal.pause()

    assert made(hangs, tmp_path / "folder", limit=1) == ("fail", "no answer in 1 s")
    assert not Path(f"/proc/{pid.read_text()}").exists()

    def bus_error() -> None:
        faulthandler.disable()  # pytest's
        os.kill(os.getpid(), signal.SIGBUS)

    assert made(bus_error, tmp_path / "folder") == ("fail", "ended by SIGBUS")


def test_an_error_that_no_check_expects_is_given_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = looked(tmp_path / "file", "hard-link", "fsync")
    assert found == dict.fromkeys(("hard-link", "fsync"), ("fail", "os.makedirs(folder, exist_ok=True): ENOTDIR"))


def parsed(tmp_path: Path, record: ExitRecord = DONE) -> dict[str, float]:
    return PosixWorkload().parse(left(tmp_path, record, stdout=GOOD)).totals()


def line(check: str, outcome: str = "pass", reason: str = "") -> bytes:
    return json.dumps({"check": check, "outcome": outcome, "reason": reason}).encode() + b"\n"


GOOD = line("fsync") + line("flock", "fail", "flock: EIO") + line("tmpfile", "unsupported", "open: EOPNOTSUPP")


def test_outcomes_are_counted_and_only_a_program_that_does_not_end_by_itself_is_a_failure(tmp_path: Path) -> None:
    found = parsed(tmp_path)
    assert [found[f"posix.{name}"] for name in ("passed", "failed", "unsupported")] == [1, 1, 1]
    with pytest.raises(CommandFailed, match="the checks ended with SIGKILL: no message"):
        parsed(tmp_path, KILLED)
    with pytest.raises(TimedOut):
        parsed(tmp_path, LIMITED)
    program.cache_clear()
    first = program()
    program.cache_clear()
    assert program() == first


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (b"", "0 lines, and there were 3 checks"),
        (GOOD + line("fsync"), "4 lines, and there were 3 checks"),
        (line("flock") + line("fsync") + line("tmpfile"), ":1: check: not fsync, which comes here"),
        (line("fsync", "good") + line("flock") + line("tmpfile"), ":1: outcome: "),
        (line("fsync", "pass", "\x1b[2J") + line("flock") + line("tmpfile"), ":1: reason: holds characters"),
        (line("fsync", "pass", "x" * 201) + line("flock") + line("tmpfile"), ":1: reason: "),
        (b"[" * 100_000 + b"\n\n\n", ":1: line: "),
        (b"x" * 600_000, "600000 bytes"),
    ],
)
def test_what_the_checks_would_not_print_is_refused_with_its_line(output: bytes, said: str) -> None:
    with pytest.raises(ParseError) as refused:
        read_checks(output, ASKED, "stdout")
    assert said in str(refused.value)


@settings(max_examples=300)
@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from(GOOD.splitlines())), max_size=5))
def test_any_output_gives_checks_in_their_order_or_is_refused(lines: list[bytes]) -> None:
    try:
        found = read_checks(b"\n".join(lines), ASKED)
    except ParseError:
        return
    assert tuple(check.check for check in found) == ASKED
    assert all(check.reason.isprintable() and len(check.reason) <= 200 for check in found)
