"""The controller of a suite is killed at any moment, again and again: every test has one result, and nothing is left.

When it is killed comes from ``STORLAB_TEST_SEED``; ``STORLAB_SUITE_KILLS`` is how often, 30 in `make attack`.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, wait_until
from laboratory.guests import needs_guests, qemus
from run.test_suites import laboratory, planted
from storlab.records.suite import RESULTS, read_suite_run

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("STORLAB_TEST_SEED", "2026"))
KILLS = int(os.environ.get("STORLAB_SUITE_KILLS", "3"))
_GROUPS, _TESTS = 4, 3
_FURTHEST = 12.0  # s from the start; on a machine that does nothing else it is through by then
_FURTHEST_ON = 2.0  # s from a test's result; those of one guest take that long
_AT_REST = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path)


@needs_guests
def test_a_suite_whose_controller_is_killed_at_any_moment_has_each_test_once(lab: Laboratory) -> None:
    draw = random.Random(SEED)
    names = [f"tests/{group}/{test}" for group in range(_GROUPS) for test in range(_TESTS)]
    sections = [f"[tests/{group}]\ntests = {[str(each) for each in range(_TESTS)]}\n" for group in range(_GROUPS)]
    scripts = dict.fromkeys(names, "echo begins; sleep 0.3; echo ends")
    runfile = planted(lab.folder / "own", scripts, "[DEFAULT]\npre = \npost = \nuser = root\n" + "\n".join(sections))
    killed, began = 0, False
    while killed < KILLS:
        words = ("resume", lab.out) if began else ("run", runfile, "--tests", runfile.parent, "--out", lab.out)
        more = () if began else ("--guests", "2")
        running = lab.start("suite", *words, *more)
        moment = wait_for_moment(lab, running, draw)
        if running.poll() is not None:  # it was through before: another run takes the rest of the kills
            assert ended(running, 10).status == 0
            check(lab, names)
            lab.storlab("clean", lab.out)
            lab.out.rename(lab.folder / f"done-{killed}")
            began = False
            continue
        kill(running)
        ended(running, 60)
        killed += 1
        print(f"STORLAB_TEST_SEED={SEED}, kill {killed}: {words[0]}, {moment}; {results(lab)} results")
        assert wait_until(lambda: not qemus(lab), _AT_REST), f"killed {moment}, and guests are still there"
        began = (lab.out / "suite.json").exists()
        if not began and lab.out.exists():  # killed before any test was known: resume says so, and clean tears it down
            refused = lab.storlab("suite", "resume", lab.out)
            assert refused.status in (1, 2) and "Traceback" not in refused.stderr, refused
            assert lab.storlab("clean", lab.out).status == 0
            assert lab.leftovers() == [], moment
            lab.out.rename(lab.folder / f"unknown-{killed}")
    if began:
        said = lab.storlab("suite", "resume", lab.out, timeout=300)
        assert said.status == 0, said
        check(lab, names)


def wait_for_moment(lab: Laboratory, running: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Until a random moment: from the start on, or, however long guests took until then, from a test's result on."""
    before, moment = results(lab), draw.uniform(0.0, _FURTHEST)
    among_tests = draw.random() < 0.5
    if among_tests:
        moment = draw.uniform(0.0, _FURTHEST_ON)
        wait_until(lambda: running.poll() is not None or results(lab) > before, _AT_REST * 5)
    until = time.monotonic() + moment
    while time.monotonic() < until and running.poll() is None:
        time.sleep(0.02)
    return f"{moment:.2f} s after {'its first result' if among_tests else 'its start'}"


def results(lab: Laboratory) -> int:
    path = lab.out / RESULTS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check(lab: Laboratory, names: list[str]) -> None:
    """Each test has one result and what it printed whole; nothing else is there."""
    run = read_suite_run(lab.out)
    tests = [each.path.partition("storlab-suite/")[2] for each in run.attempts if each.role == "test"]
    assert sorted(tests) == names and run.without_result == [] and run.finished is not None
    for each in run.attempts:
        assert (lab.out / each.folder / "stdout").read_text() == "begins\nends\n", each
    assert lab.leftovers() == []


@needs_guests
def test_a_full_disk_of_this_machine_ends_a_run_with_one_sentence_and_it_is_resumed(lab: Laboratory) -> None:
    scripts = {"tests/a": "echo fine", "tests/b": "head -c 20M /dev/zero", "tests/c": "echo fine"}
    runfile = planted(lab.folder / "own", scripts, "[tests]\ntests = ['a', 'b', 'c']\npre =\npost =\nuser = root\n")
    full = lab.folder / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", full], check=True)
    try:
        out = full / "out"
        said = lab.storlab("suite", "run", runfile, "--tests", runfile.parent, "--out", out, timeout=300)
        assert said.status == 1 and said.stderr.count("no space left") == 1 and "Traceback" not in said.stderr, said
        assert "`storlab suite resume`" in said.stderr
        subprocess.run(["mount", "-o", "remount,size=64M", full], check=True)
        assert lab.storlab("suite", "resume", out, timeout=300).status == 0
        assert len(read_suite_run(out).results) == 3
    finally:
        subprocess.run(["umount", full], check=True)
