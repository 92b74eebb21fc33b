"""The workload posix with others: several nodes on the same files, whoever serves them, and pjdfstest."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from storlab.base.errors import UserError
from storlab.workloads.posix.checks.outcome import Fails, Unsupported
from storlab.workloads.posix.checks.pjdfstest import check
from storlab.workloads.posix.checks.pjdfstest import judge as judge_tests
from storlab.workloads.posix.checks.table import BETWEEN
from storlab.workloads.posix.results import read_checks
from storlab.workloads.posix.server import Seen, judge
from storlab.workloads.posix.workload import Pjdfstest, program

Outcomes = Mapping[str, tuple[str, str]]
LIMIT = 60  # s: this machine may be busy
STALE = """
import os, runpy, sys
pread = os.pread
def stale(file, length, at, kept={}):
    return kept.setdefault((os.readlink(f"/proc/self/fd/{file}"), at), pread(file, length, at))
os.pread = stale
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A node that gives what it once read for ever, as one does whose cache nobody corrects."""


def sent(folder: Path) -> Path:
    file = folder / "checks.pyz"
    file.write_bytes(program())
    return file


def looked(root: Path, names: list[str], second: str = "") -> list[Outcomes]:
    """What two nodes say, the ``second`` of which may run the program in another way."""
    file = sent(root)
    running = []
    for me, way in (("a", ""), ("b", second)):
        python = [sys.executable, "-I", *(["-c", way] if way else []), str(file)]
        options = ["--nodes=a,b", f"--me={me}", f"--common={root}/common"]
        argv = [*python, f"{root}/own-{me}", str(LIMIT), *options, *names]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    found = list[Outcomes]()
    for process in running:
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, b"")
        found.append({check.check: (check.outcome, check.reason) for check in read_checks(output, names)})
    return found


def test_two_nodes_see_each_other_but_for_one_with_a_stale_cache_for_which_nobody_waits(tmp_path: Path) -> None:
    assert looked(tmp_path, list(BETWEEN)) == [dict.fromkeys(BETWEEN, ("pass", ""))] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["checks.pyz"]
    first, second = looked(tmp_path, ["nodes-write-while-open", "nodes-mmap-read", "nodes-mmap-load"], STALE)
    assert first == dict.fromkeys(first, ("pass", ""))
    assert second == {
        "nodes-write-while-open": ("fail", "what another node writes to an open file is read not within 3 s"),
        "nodes-mmap-read": ("fail", "what another node stored and synced is read not within 3 s"),
        "nodes-mmap-load": ("pass", ""),
    }


def test_one_node_alone_can_not_look_and_one_whose_others_are_gone_gives_up(tmp_path: Path) -> None:
    file = sent(tmp_path)

    def said(*options: str) -> Outcomes:
        argv = [sys.executable, "-I", str(file), str(tmp_path / "own"), "1", *options, "nodes-create"]
        output = subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout
        return {check.check: (check.outcome, check.reason) for check in read_checks(output, ["nodes-create"])}

    assert said()["nodes-create"][0] == "unsupported"
    assert said("--nodes=a,b", "--me=a", f"--common={tmp_path}/common")["nodes-create"] == ("fail", "no answer in 1 s")


SYNCED = {"size": 65536, "same": True, "placed": True}


def test_what_the_server_has_of_an_open_file_says_whether_fsync_reached_it() -> None:
    for synced, outcome, said in (
        ({}, "pass", ""),
        ({"placed": None}, "pass", "does not say"),
        ({"size": 0, "same": False, "placed": None}, "fail", "after fsync the server's file has 0 of 65536 B"),
        ({"same": False}, "fail", "has other contents"),
        ({"placed": False}, "fail", "has not synced them"),
    ):
        found = judge(Seen.model_validate(SYNCED | synced))
        assert found[0] == outcome and said in found[1] and bool(found[1]) == bool(said)
        line = json.dumps({"check": "fsync-reaches-server", "outcome": found[0], "reason": found[1]}).encode()
        assert read_checks(line, ["fsync-reaches-server"])[0].outcome == outcome


def test_a_file_is_seen_as_it_is_while_it_is_held_open(tmp_path: Path) -> None:
    file, folder = sent(tmp_path), tmp_path / "held"
    look = Path(__file__).parents[2] / "src/storlab/workloads/posix/checks/seen.py"

    def seen() -> Seen:
        output = subprocess.run([sys.executable, "-I", str(look), str(folder)], capture_output=True, check=True).stdout
        return Seen.model_validate_json(output)

    assert judge(seen()) == ("fail", "after fsync the server's file has 0 of 65536 B")
    holding = subprocess.Popen([sys.executable, "-I", str(file), str(folder), "--hold"], stdout=subprocess.PIPE)
    try:
        assert holding.stdout is not None and holding.stdout.readline() == b"ready\n" and judge(seen())[0] == "pass"
        (folder / "synced").write_bytes(b"x" * 65536)
        assert judge(seen()) == ("fail", "after fsync the server's file has other contents")
        (folder / "synced").unlink()
        (folder / "synced").symlink_to("/etc/passwd")
        ended = subprocess.run([sys.executable, "-I", str(look), str(folder)], capture_output=True, check=False)
        assert ended.returncode == 1 and b"Too many levels of symbolic links" in ended.stderr
    finally:
        holding.kill()
        holding.communicate()


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


def test_a_file_passes_where_all_its_tests_do_and_fails_with_the_first_that_did_not() -> None:
    for output in ("1..2\nok 1\nok 2\n", "1..2\nok 1 # TODO later\nnot ok 2 # TODO ZFS does not\n"):
        judge_tests(output, "", 0)
    with pytest.raises(Unsupported):
        judge_tests("1..0 # SKIP no jails here\n", "", 0)
    for output, errors, said in (
        (f"1..3\nok 1\nnot ok 2 - {LOST}\nok 3\n", "", f"1 of 3 failed: 2 - {LOST}"),
        ("1..1\nnot ok\n", "", "1 of 1 failed: one without a number"),
        ("1..5\n" + "".join(f"not ok {n}\n" for n in range(1, 6)), "", "5 of 5 failed: 1; 2; 3"),
        ("1..3\nok 1\n", "", "1 of 3 tests were made; it ended with status 7"),
        ("", "sh: 1: openssl: not found\n", "no plan was printed: sh: 1: openssl: not found"),
        ("", "", "no plan was printed: status 7"),
    ):
        with pytest.raises(Fails) as found:
            judge_tests(output, errors, 7)
        assert str(found.value) == said


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


def test_its_files_are_those_that_there_are_and_links_are_none_of_them(tmp_path: Path) -> None:
    folder = made(tmp_path / "pjd", **{"00": "", "01": ""})
    (folder / "tests" / "rename" / "02.t").symlink_to("/etc/passwd")
    all_of_it = Pjdfstest(path=str(folder))
    assert all_of_it.names() == ("pjdfstest/rename/00.t", "pjdfstest/rename/01.t")
    assert Pjdfstest(path=str(folder), files=("rename/01.t", "rename")).names() == all_of_it.names()[::-1]
    assert b"root:" not in all_of_it.archive()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "03.t").touch()
    (folder / "tests" / "away").symlink_to(tmp_path / "elsewhere")
    for chosen in ("away", "away/03.t"):
        with pytest.raises(UserError, match="there is no test "):
            Pjdfstest(path=str(folder), files=(chosen,)).names()


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
    archive, file, root = tmp_path / "sent.zip", sent(tmp_path), tmp_path / "looked-at"
    archive.write_bytes(tests.archive())
    options = (f"--pjdfstest={archive}", "--pjdfstest-limit=5")
    argv = [sys.executable, "-I", str(file), str(root), "5", *options, *tests.names()]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    ended = subprocess.run(argv, capture_output=True, check=True, timeout=60, env=environment)
    found = [(check.outcome, check.reason) for check in read_checks(ended.stdout, tests.names())]
    assert found == [("pass", ""), ("pass", ""), ("fail", "no answer in 5 s")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checks.pyz", "pjd"]
