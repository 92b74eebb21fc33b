"""pjdfstest's files (https://github.com/pjd/pjdfstest), each a check: shell scripts that print what TAP describes.

The Test Anything Protocol: "1..N", and a line "ok 1" or "not ok 1" for each of the N; "# TODO" is no failure, "# SKIP"
no test. A file is run without Perl's ``prove``, which few machines have, in a directory of its own.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable

from .outcome import Fails, Unsupported

PREFIX = "pjdfstest/"
"""What the names of these checks begin with; ``pjdfstest/rename/00.t``."""

_PLAN = re.compile(r"1\.\.(\d{1,6})\b(?P<skipped>\s*#\s*skip)?", re.IGNORECASE)
_TEST = re.compile(r"(?P<failed>not )?ok\b(?: (?P<number>\d{1,6}))?(?P<said>.*)")
_EXCUSED = re.compile(r"#\s*(todo|skip)\b", re.IGNORECASE)
_DEVICES = re.compile(r"\b(mknod|block|char)\b")
_MADE_UP = re.compile(r"\bpjdfstest_[0-9a-f]{20,}\b")  # names of files
_NAMED = 3  # failures that are named


def check(folder: str, name: str) -> Callable[[], str | None]:
    """The check that a file is. ``folder`` has pjdfstest's program and tests."""

    def run() -> None:
        os.environ.update(dir=os.path.join(folder, "tests"))
        script = os.path.join(folder, "tests", name.removeprefix(PREFIX))
        ended = subprocess.run(["sh", script], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        try:
            judge(ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"), ended.returncode)
        except Fails as error:
            if _DEVICES.search(_text_of(script)) and not _makes_devices(folder):
                raise Unsupported(f"makes devices, which a confined load may not: {error}") from None
            raise

    return run


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _makes_devices(folder: str) -> bool:
    """Whether this process may do so anywhere: if not, that says nothing about the file system."""
    device = os.path.join(folder, "device")
    try:
        os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(1, 2))
    except OSError:
        return False
    os.unlink(device)
    return True


def judge(output: str, errors: str, status: int) -> None:
    """Raises ``Fails`` or ``Unsupported`` for what a file printed, unless all of its tests passed."""
    lines = output.splitlines()
    plan = next((found for line in lines if (found := _PLAN.match(line))), None)
    tests = [found for line in lines if (found := _TEST.match(line))]
    bad = [test for test in tests if test["failed"] and not _EXCUSED.search(test["said"])]
    if bad:
        raise Fails(f"{len(bad)} of {len(tests)} failed: {'; '.join(map(_said, bad[:_NAMED]))}")
    if plan is None:
        raise Fails(f"no plan was printed: {(errors.strip() or output.strip() or f'status {status}').splitlines()[-1]}")
    if int(plan[1]) == 0:
        raise Unsupported("the file skips all of its tests")
    if len(tests) != int(plan[1]):
        raise Fails(f"{len(tests)} of {plan[1]} tests were made; it ended with status {status}")


def _said(test: re.Match[str]) -> str:
    said = _MADE_UP.sub("FILE", test["said"])
    return f"{test['number'] or ''}{said}".strip() or "one without a number"
