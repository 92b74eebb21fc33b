"""``storlab suite`` on real guests: planted tests that fail in every way, and some of the ZFS Test Suite's own."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from laboratory import Ended, Laboratory, ended, kill, wait_for, wait_until
from laboratory.guests import needs_guests, qemus
from storlab.records.suite import SuiteRun, read_suite_run
from storlab.suite.model import Attempt, Outcome

pytestmark = pytest.mark.slow

ZTS = "/usr/share/zfs/zfs-tests/tests/functional"
OWN = "/usr/local/share/storlab-suite/tests"
RUNFILE = f"""\
[DEFAULT]
pre = setup
post = cleanup
pre_user = root
user = root
post_user = root
timeout = 4
failsafe = callbacks/failsafe
failsafe_user = root
tags = ['own']

[tests/planted]
tests = ['passes', 'fails', 'skips', 'ignores_term', 'no_newline', 'panics', 'after', 'gone']

[tests/unprepared]
tests = ['never']

[tests/users]
tests = ['nobody']
user = nobody
pre =
post =

[tests/whoever]
tests = ['whoever']
user =
pre =
post =

[tests/leaves]
tests = ['leaves']
pre =
post =

[tests/exports]
tests = ['exports']
timeout = 120
pre =
post =

[tests/fresh]
tests = ['fresh']
timeout = 120
pre =
post =

[{ZTS}/cli_root/zfs]
tests = ['zfs_001_neg']
timeout = 600
tags = ['zfs']

[{ZTS}/hkdf]
tests = ['hkdf_test']
timeout = 600
pre =
post =
"""
SCRIPTS = {
    "callbacks/failsafe": "echo made safe",
    "tests/planted/setup": "echo set up",
    "tests/planted/cleanup": "echo cleaned up; cat /proc/*/comm 2> /dev/null | grep -cx left-by-test",
    "tests/planted/passes": "echo out; echo err >&2; id -un; hostname --fqdn",
    "tests/planted/fails": "exit 1",
    "tests/planted/skips": "exit 4",
    "tests/planted/ignores_term": 'trap "" TERM; while :; do sleep 1000; done',
    "tests/planted/no_newline": r"printf 'one\n\000\377two'",
    "tests/planted/panics": "echo going down; sleep 1; echo c > /proc/sysrq-trigger; sleep 1000",
    "tests/planted/after": "cp /bin/sleep /tmp/left-by-test; setsid /tmp/left-by-test 1000 > /dev/null 2>&1 &",
    "tests/unprepared/setup": "exit 1",
    "tests/unprepared/cleanup": "echo cleaned up all the same",
    "tests/unprepared/never": "exit 1",
    "tests/users/nobody": "id -un; echo $SUDO_USER; touch $TMPDIR/by-nobody",
    "tests/leaves/leaves": "echo left:x:4242: >> /etc/group; sleep 1000",
    # `zpool create` refuses a disk with the label of an exported pool, unless it is forced to.
    "tests/exports/exports": "set -- $DISKS; zpool create exported $1 && zpool export exported",
    "tests/fresh/fresh": "set -- $DISKS; zpool create created $1 && zpool destroy created",
    "tests/whoever/whoever": "id -un; sudo -n id -un; test -r /dev/zfs",
}


def planted(folder: Path, scripts: dict[str, str], runfile: str) -> Path:
    """A suite of one's own; returns its runfile."""
    for name, script in scripts.items():
        path = folder / f"{name}.sh"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (folder / "own.run").write_text(runfile)
    return folder / "own.run"


def laboratory(folder: Path) -> Iterator[Laboratory]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Laboratory(folder)
        try:
            yield lab
        finally:  # also where a suite that takes an hour is interrupted
            lab.close()
        assert lab.leftovers() == []
        assert not [*Path("/var/tmp").glob(f"storlab-{lab.identity}*")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Laboratory, Ended, SuiteRun]]:
    for lab in laboratory(tmp_path_factory.mktemp("suite")):
        runfile = planted(lab.folder / "own", SCRIPTS, RUNFILE)
        said = lab.storlab("suite", "run", runfile, "--tests", runfile.parent, "--out", lab.out, timeout=550)
        yield lab, said, read_suite_run(lab.out)


def result(run: SuiteRun, path: str, role: str = "test") -> Attempt:
    return [each for each in run.attempts if each.path.endswith(path) and each.role == role][-1]


def failsafe_of(run: SuiteRun, killed: Attempt) -> Attempt:
    (found,) = (each for each in run.attempts if each.role == "failsafe" and each.folder.startswith(killed.folder))
    return found


@needs_guests
def test_every_test_has_its_outcome_and_the_rest_runs_on(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, said, run = whole
    assert {key[1].rpartition("/")[2]: each.outcome for key, each in run.results.items()} == {
        "zfs_001_neg": Outcome.PASS,
        "hkdf_test": Outcome.PASS,
        "passes": Outcome.PASS,
        "fails": Outcome.FAIL,
        "skips": Outcome.SKIP,
        "ignores_term": Outcome.KILLED,
        "no_newline": Outcome.PASS,
        "panics": Outcome.CRASHED,
        "after": Outcome.PASS,
        "never": Outcome.SKIP,
        "nobody": Outcome.PASS,
        "whoever": Outcome.PASS,
        "leaves": Outcome.KILLED,
        "exports": Outcome.PASS,
        "fresh": Outcome.PASS,  # on a disk that is empty for each group
    }, said
    assert said.status == 4 and "own.run:13: test gone is left out" in said.stderr
    assert "not expected" in said.stdout and run.without_result == []


@needs_guests
def test_the_environment_of_the_guests_is_recorded(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    environment = whole[2].asked.environment
    assert environment is not None and environment.kernel and environment.image and environment.accelerator
    assert environment.cpus == 2 and environment.modules["zfs"] and environment.storlab


def test_what_is_killed_says_why_and_is_made_safe(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, said, run = whole
    killed = result(run, "/ignores_term")
    assert "neither printed nor computed, and no disk worked, and did not end for TERM" in killed.reason
    assert "hrtimer_nanosleep" in (lab.out / killed.folder / "killed.txt").read_text()
    assert failsafe_of(run, killed).outcome is Outcome.PASS
    assert "failsafe" not in said.stdout and b"made safe" in (lab.out / "log").read_bytes()


@needs_guests
def test_a_guest_that_is_lost_is_the_result_of_the_test_that_ran(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, _, run = whole
    lost = result(run, "/panics")
    assert lost.reason == "the guest's kernel panicked: sysrq triggered crash"
    assert "going down" in (lab.out / lost.folder / "stdout").read_text()
    assert "sysrq triggered crash" in (lab.out / "guests/001-guest-1/console.log").read_text(errors="replace")
    setups = [each for each in run.attempts if each.path == f"{OWN}/planted/setup"]
    assert [each.outcome for each in setups] == [Outcome.PASS] * 2  # once more in the fresh guest
    assert len({each.key for each in run.attempts if each.role == "test"}) == len(run.results)


@needs_guests
def test_survivors_of_a_test_live_until_its_group_is_cleaned_up_and_are_named(
    whole: tuple[Laboratory, Ended, SuiteRun],
) -> None:
    lab, _, run = whole
    cleanup = result(run, "/planted/cleanup", "post")
    assert (lab.out / cleanup.folder / "stdout").read_text() == "cleaned up\n1\n"
    assert [(leak.kind, leak.what, leak.by) for leak in cleanup.leaks] == [
        ("process", "left-by-test", f"{OWN}/planted/after")
    ]


@needs_guests
def test_what_a_killed_test_left_is_named_once_it_was_made_safe(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, _, run = whole
    killed = result(run, "/leaves")
    assert killed.outcome is Outcome.KILLED and not killed.leaks
    assert [(leak.kind, leak.what, leak.by) for leak in failsafe_of(run, killed).leaks] == [
        ("group", "left", f"{OWN}/leaves/leaves")
    ]


@needs_guests
def test_output_is_kept_as_it_was_printed(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, _, run = whole
    odd = lab.out / result(run, "/no_newline").folder
    assert (odd / "stdout").read_bytes() == b"one\n\0\xfftwo"
    assert [line[12:] for line in (odd / "log").read_bytes().split(b"\n")] == [b"one", b"\0\xfftwo", b""]
    passes = lab.out / result(run, "/passes").folder
    assert sorted((passes / "merged").read_text().split()) == ["err", "guest-1", "out", "root"]
    assert (lab.out / result(run, "/nobody").folder / "stdout").read_text() == "nobody\ntester\n"
    assert (lab.out / result(run, "/whoever").folder / "stdout").read_text() == "tester\nroot\n"


@needs_guests
def test_tests_whose_set_up_fails_are_skipped_and_cleaned_up(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    _, _, run = whole
    assert result(run, "/unprepared/setup", "pre").outcome is Outcome.FAIL
    assert result(run, "/never").reason == "the set-up of its group did not pass"
    assert result(run, "/unprepared/cleanup", "post").outcome is Outcome.PASS


@needs_guests
def test_the_run_is_reported_in_every_format(whole: tuple[Laboratory, Ended, SuiteRun]) -> None:
    lab, said, _ = whole
    console = lab.storlab("suite", "report", lab.out, "--format", "zts").stdout
    lines = [line for line in console.splitlines() if line.startswith("Test: ")]
    assert [line for line in said.stdout.splitlines() if line.startswith("Test: ")] == lines
    assert f"    KILLED {OWN}/planted/panics (expected PASS)" in console
    assert all(line.endswith("]") and len(line) >= 79 for line in lines)
    junit = ElementTree.fromstring(lab.storlab("suite", "report", lab.out, "--format", "junit").stdout)
    assert sum(int(suite.attrib["errors"]) for suite in junit) == 4
    document = json.loads(lab.storlab("suite", "report", lab.out, "--format", "json").stdout)
    assert document["counts"] == {"PASS": 9, "FAIL": 1, "SKIP": 2, "KILLED": 2, "CRASHED": 1}
    assert "| CRASHED | tests/planted/panics |" in lab.storlab("suite", "report", lab.out, "-f", "md").stdout
    page = (lab.out / "report.html").read_text()
    assert "the guest&#39;s kernel panicked" in page and "src=" not in page
    assert "not a study" in lab.storlab("report", lab.out).stderr or lab.storlab("report", lab.out).status == 2


SLOW = "[tests]\ntests = ['first', 'second', 'third']\npre = setup\n"
WAITS = {
    "tests/setup": "echo set up",
    "tests/first": "echo first",
    "tests/second": "test -e /tmp/again || sleep 1000; echo second",
    "tests/third": "echo third",
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path)


@needs_guests
def test_a_run_that_is_killed_leaves_nothing_and_is_resumed(lab: Laboratory) -> None:
    runfile = planted(lab.folder / "own", WAITS, SLOW)
    results = lab.out / "results.jsonl"

    def has(test: str) -> bool:
        return results.exists() and f'/{test}"'.encode() in results.read_bytes()

    running = lab.start("suite", "run", runfile, "--tests", runfile.parent, "--out", lab.out)
    wait_for(running, lambda: has("first"))
    kill(running)
    ended(running)
    assert wait_until(lambda: not qemus(lab), 30)
    cleaned = lab.storlab("clean", lab.out)
    assert cleaned.status == 0 and "removed" in cleaned.stdout, cleaned
    (runfile.parent / "tests/second.sh").write_text("#!/bin/sh\necho second; sleep 3\n")

    resumed = lab.start("suite", "resume", lab.out)
    wait_for(resumed, lambda: [line for line in results.read_text().splitlines() if '"pre"' in line][1:])
    kill(resumed, signal.SIGINT)  # the second test is finished first
    interrupted = ended(resumed, 120)
    assert interrupted.status == 130 and "storlab suite resume" in interrupted.stderr, interrupted
    assert has("second") and not has("third")

    said = lab.storlab("suite", "resume", lab.out, timeout=300)
    run = read_suite_run(lab.out)
    tests = [each.path.rpartition("/")[2] for each in run.attempts if each.role == "test"]
    assert (said.status, tests) == (0, ["first", "second", "third"]), said
    assert [each.role for each in run.attempts].count("pre") == 3 and run.finished is not None
