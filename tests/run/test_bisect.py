"""``storlab suite bisect`` on a real repository, in which one commit breaks a test one time in three."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from laboratory import Laboratory, wait_for
from laboratory import ended as end_of
from laboratory.samples import sample
from storlab.records.run_folder import RunFolder
from storlab.suites.bisect import commits_between, program_of, read_plan
from storlab.suites.run.wants import wants_of_bisection
from study.program import Ran, call

CULPRIT = 19
CHECK = sample(__file__, "cases/fails-one-in-three.sh")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty commits after the first, ``v1``; number 19 breaks the test, and number 25 does not build."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    (folder / "check.sh").write_text(CHECK)
    (folder / "check.sh").chmod(0o755)
    for number in range(31):
        (folder / "state").write_text(f"{number} {'broken' if number >= CULPRIT else 'sound'}\n")
        (folder / "build.sh").write_text("exit 1\n" if number == 25 else "cp state built\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        if number == 0:
            git(folder, "tag", "v1")
    return folder


def bisected(repository: Path, out: Path, *more: str) -> Ran:
    check = f"./check.sh {out}.count"
    ends = ("--good", "v1", "--bad", "main", "--error", "0.01", "--repo", str(repository), "--check", check)
    return call("suite", "bisect", *ends, "--out", str(out), *more, "--", "sh", "build.sh")


def resumed(folder: Path, *options: str) -> Ran:
    """A bisection of this test's own goes on: its commands are allowed."""
    wants = wants_of_bisection(read_plan(folder))
    return call("suite", "bisect", "--resume", str(folder), *(f"--allow={each.permission}" for each in wants), *options)


def test_the_commit_that_breaks_a_test_one_time_in_three_is_found_and_resumed(repository: Path, tmp_path: Path) -> None:
    ended = bisected(repository, tmp_path / "out")
    assert ended.status == 0, ended.message
    assert "First bad:" in ended.output and f"Change {CULPRIT} (Ann" in ended.output
    assert "(99.0% was asked for)" in ended.output
    assert git(repository, "worktree", "list").count("\n") == 1, "no worktree is left"
    assert git(repository, "status", "--porcelain") == ""
    journal = tmp_path / "out/tests.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:20]) + '\n{"number":3,"pas')  # as a kill leaves it
    ended = resumed(tmp_path / "out", "--json")
    document = json.loads(ended.output)
    assert "20 checks were done before." in ended.message and document["probability"] >= 0.99
    assert document["culprits"] == [git(repository, "rev-parse", f"main~{30 - CULPRIT}").strip()]
    assert journal.read_text().splitlines()[:20] == lines[:20]


def test_ends_that_do_not_fit_are_named(repository: Path, tmp_path: Path) -> None:
    for name, words in {
        "good": ("--good", "main~2", "--bad", "main", "--check", "false"),
        "bad": ("--good", "v1", "--bad", "main~20", "--check", "true", "--at-least", "0.5"),
    }.items():
        ended = call("suite", "bisect", *words, "--repo", str(repository), "--out", str(tmp_path / name), "--quiet")
        sentence = "the good one fails: run 1" if name == "good" else "the bad one passes: 5 of 5 runs"
        assert ended.status == 2 and sentence in ended.message
    assert git(repository, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--good", "v1", "--bad", "none"], "none is not a commit"),
        (["--good", "main", "--bad", "v1"], "--good main is not an ancestor of --bad v1"),
        (["--good", "v1", "--bad", "v1"], "are the same commit"),
        (["--good", "v1"], "--good, --bad and --check are needed"),
        (["--good", "b", "--bad", "a", "--candidates", "a,b"], "write them in order"),
        (["--good", "a", "--bad", "c", "--candidates", "a,b"], "--bad c: it is to be one of --candidates, once"),
    ],
)
def test_what_can_not_be_bisected_is_refused(words: list[str], said: str, repository: Path, tmp_path: Path) -> None:
    where = ("--repo", str(repository), "--out", str(tmp_path / "out"))
    ended = call("suite", "bisect", *words, "--check", "true", *where)
    assert ended.status == 2 and said in ended.message, ended.message
    assert not (tmp_path / "out").exists()


def test_kernels_are_candidates_by_name_and_what_hangs_fails(tmp_path: Path) -> None:
    names = [f"6.{number}" for number in range(8)]
    (tmp_path / "kernels").write_text("\n".join(names))
    check = "sh -c 'case {} in 6.[5-7]) sleep 61.37;; esac; test $STORLAB_CANDIDATE = {}'"
    ends = ("--good", "6.0", "--bad", "6.7", "--candidates", f"@{tmp_path}/kernels", "--timeout", "0.3")
    ended = call("suite", "bisect", *ends, "--check", check, "--out", str(tmp_path / "out"), "--json", "--error", "0.2")
    assert json.loads(ended.output)["culprits"] == ["6.5"], ended.message
    assert not [each for each in Path("/proc").glob("[1-9]*") if b"sleep\x0061.37\x00" in _command(each)]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


CANDIDATES = ("--good", "a", "--bad", "c", "--candidates", "a,b,c", "--out")


def test_a_check_that_can_not_be_run_says_nothing_and_only_its_owner_works_on_it(tmp_path: Path) -> None:
    ended = call("suite", "bisect", *CANDIDATES, str(tmp_path / "out"), "--check", "no-such-program")
    assert ended.status == 1 and "cannot run no-such-program, the check: No such file" in ended.message
    assert resumed(tmp_path / "out").status == 1
    with RunFolder(tmp_path / "out").lock():
        ended = resumed(tmp_path / "out")
    assert ended.status == 2 and "is in use by process" in ended.message
    if os.geteuid() == 0:
        os.chown(tmp_path / "out" / "bisect.json", 65534, -1)
        ended = resumed(tmp_path / "out")
        assert ended.status == 2 and "belongs to another user" in ended.message


def test_a_signal_that_ends_it_ends_the_check_too_and_it_says_how_to_go_on(tmp_path: Path) -> None:
    """SIGTERM, as SIGHUP may be ignored where this is run, and is then left so."""
    check = f"sh -c 'touch {tmp_path}/begun; sleep 61.38'"
    process = Laboratory(tmp_path).start("suite", "bisect", *CANDIDATES, tmp_path / "out", "--check", check)
    wait_for(process, (tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    said = end_of(process)
    assert said.status == 130 and "--resume" in said.stderr
    assert not [each for each in Path("/proc").glob("[1-9]*") if b"sleep\x0061.38\x00" in _command(each)]


def test_merges_are_one_step(repository: Path) -> None:
    commits = commits_between(repository, "v1", "main")
    assert len(commits) == 31 and commits[0] == git(repository, "rev-parse", "v1").strip()


SUITE = sample(__file__, "cases/works.toml")


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("/opt/bin/storlab", "suite", "run"), "storlab"),
        (("sudo", "-u", "root", "storlab", "suite", "check"), "storlab"),
        (("sudo", "./test"), "sudo"),
        (("./storlab-test", "storlab"), "storlab-test"),
    ],
)
def test_a_check_by_storlab_is_known_as_one(command: tuple[str, ...], program: str) -> None:
    assert program_of(command) == program


@pytest.mark.needs("guests")
def test_the_commit_is_found_by_runs_of_a_suite_unless_all_tests_are_skipped(lab: Laboratory, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    (folder / "tests").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "suite.toml").write_text(SUITE)
    for number in range(3):
        (folder / "tests/works").write_text(f"#!/bin/sh\n# {number}\nexit {(0, 4, 1)[number]}\n")  # 4: it is skipped
        (folder / "tests/works").chmod(0o755)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"Change {number}")
    program = Path(sys.executable).with_name("storlab")
    ended = lab.storlab(
        "suite", "bisect", "--good", "main~2", "--bad", "main", "--repo", folder, "--at-least", "0.9", "--error", "0.1",
        "--check", f"{program} suite run suite.toml --quiet", "--out", lab.out, timeout=300,
    )  # fmt: skip
    assert ended.status == 0 and "The first bad one is among these" in ended.stdout, ended
    assert "Change 1 (Ann" in ended.stdout and "Change 2 (Ann" in ended.stdout, "nothing of the first can be tested"
    logs = [path.read_text() for path in sorted((lab.out / "output").iterdir())]
    failed = [log for log in logs if "FAIL works" in log]
    assert 0 < len(failed) < len(logs) and not git(folder, "status", "--porcelain"), logs
