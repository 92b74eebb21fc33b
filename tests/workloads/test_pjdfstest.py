"""pjdfstest in the workload posix: what its files print, which of them there are, and how they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storlab.errors import UserError
from storlab.workloads.posix.checks.outcome import Fails, Unsupported
from storlab.workloads.posix.checks.pjdfstest import check, judge
from storlab.workloads.posix.pjdfstest import Pjdfstest
from storlab.workloads.posix.results import read_checks
from storlab.workloads.posix.workload import program

LOST = "tried 'lstat a nlink', expected 1, got 2"


def made(folder: Path, **tests: str) -> Path:
    """A folder as pjdfstest is, whose program does nothing."""
    (folder / "tests" / "rename").mkdir(parents=True)
    for name in ("tests/conf", "tests/misc.sh"):
        (folder / name).write_text("")
    (folder / "pjdfstest").write_text("#!/bin/sh\n")
    (folder / "pjdfstest").chmod(0o755)
    for name, script in tests.items():
        (folder / "tests" / "rename" / f"{name}.t").write_text(script)
    return folder


@pytest.mark.parametrize("output", ["1..2\nok 1\nok 2\n", "1..2\nok 1 # TODO later\nnot ok 2 # TODO ZFS does not\n"])
def test_a_file_passes_where_all_of_its_tests_do_or_are_excused(output: str) -> None:
    judge(output, "", 0)


def test_a_file_that_takes_devices_says_nothing_where_nobody_may_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = "echo 1..1; echo not ok 1 - tried mknod pjdfstest_24189adfa4a9900832f1575264902c16, got EACCES"
    folder = made(tmp_path / "pjd", **{"00": f"# block\n{fails}", "01": fails.replace("mknod", "mkdir")})

    def refused(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", lambda path, *_: Path(path).touch())
    with pytest.raises(Fails, match="1 of 1 failed: 1 - tried mknod FILE, got EACCES"):
        check(str(folder), "pjdfstest/rename/00.t")()
    monkeypatch.setattr(os, "mknod", refused)
    with pytest.raises(Unsupported, match="makes devices, which a confined load may not: 1 of 1"):
        check(str(folder), "pjdfstest/rename/00.t")()
    with pytest.raises(Fails):
        check(str(folder), "pjdfstest/rename/01.t")()


@pytest.mark.parametrize(
    ("output", "errors", "said"),
    [
        (f"1..3\nok 1\nnot ok 2 - {LOST}\nok 3\n", "", f"1 of 3 failed: 2 - {LOST}"),
        ("1..1\nnot ok\n", "", "1 of 1 failed: one without a number"),
        ("1..5\n" + "".join(f"not ok {n}\n" for n in range(1, 6)), "", "5 of 5 failed: 1; 2; 3"),
        ("1..3\nok 1\n", "", "1 of 3 tests were made; it ended with status 7"),
        ("", "sh: 1: openssl: not found\n", "no plan was printed: sh: 1: openssl: not found"),
        ("", "", "no plan was printed: status 7"),
    ],
)
def test_a_file_fails_with_the_first_tests_that_did(output: str, errors: str, said: str) -> None:
    with pytest.raises(Fails) as found:
        judge(output, errors, 7)
    assert str(found.value) == said


def test_a_file_that_skips_everything_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        judge("1..0 # SKIP no jails here\n", "", 0)


def test_its_files_are_those_that_there_are_and_links_are_none_of_them(tmp_path: Path) -> None:
    folder = made(tmp_path / "pjd", **{"00": "", "01": ""})
    (folder / "tests" / "rename" / "02.t").symlink_to("/etc/passwd")
    all_of_it = Pjdfstest(path=str(folder))
    assert all_of_it.names() == ("pjdfstest/rename/00.t", "pjdfstest/rename/01.t")
    assert Pjdfstest(path=str(folder), files=("rename/01.t", "rename")).names() == all_of_it.names()[::-1]
    assert b"root:" not in all_of_it.archive()


def test_what_is_not_there_is_named_with_its_key_and_what_to_do(tmp_path: Path) -> None:
    folder = made(tmp_path / "pjd", **{"00": ""})
    with pytest.raises(UserError, match="is no folder of pjdfstest: it has no program pjdfstest; build it") as refused:
        Pjdfstest(path=str(tmp_path)).names()
    assert refused.value.key == ("path",)
    with pytest.raises(UserError, match=r"there is no test .*/tests/rename/07\.t") as refused:
        Pjdfstest(path=str(folder), files=("rename", "rename/07.t")).names()
    assert refused.value.key == ("files", 1)
    (folder / "pjdfstest").unlink()
    (folder / "pjdfstest.c").write_text("")
    with pytest.raises(UserError, match="is not built: "):
        Pjdfstest(path=str(folder)).names()
    with pytest.raises(ValueError, match="should match pattern"):
        Pjdfstest(path=str(folder), files=("../../etc",))


def test_each_file_is_run_in_a_directory_of_its_own_and_one_that_hangs_is_ended(tmp_path: Path) -> None:
    passes = '[ "$(ls | wc -l)" = 0 ] && . "${dir}/misc.sh" && "${dir}/../pjdfstest" && echo 1..1 && echo ok 1; touch x'
    tests = Pjdfstest(path=str(made(tmp_path / "pjd", **{"00": passes, "01": passes, "02": "sleep 60"})))
    archive, file, root = tmp_path / "sent.zip", tmp_path / "checks.pyz", tmp_path / "looked-at"
    archive.write_bytes(tests.archive())
    file.write_bytes(program())
    options = (f"--pjdfstest={archive}", "--pjdfstest-limit=5")
    argv = [sys.executable, "-I", str(file), str(root), "5", *options, *tests.names()]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    ended = subprocess.run(argv, capture_output=True, check=True, timeout=60, env=environment)
    found = [(check.outcome, check.reason) for check in read_checks(ended.stdout, tests.names())]
    assert found == [("pass", ""), ("pass", ""), ("fail", "no answer in 5 s")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checks.pyz", "pjd"]
