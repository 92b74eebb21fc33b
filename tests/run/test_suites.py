"""``storlab suite`` on real guests: planted tests do whatever tests do; each has its outcome, its cause and reports."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from laboratory import Ended, Laboratory, opened
from laboratory.samples import sample
from storlab.records.suite import SuiteRun, read_suite_run
from storlab.run.suite.output import MOST
from storlab.suite.model import Attempt, Outcome

ZTS = "/usr/share/zfs/zfs-tests/tests/functional"
OWN = "/usr/local/share/storlab-suite/tests"
_MUCH = MOST + (16 << 20)
_TESTS: dict[str, dict[str, dict[str, str]]] = tomllib.loads(sample(__file__, "cases/planted-tests.toml", much=_MUCH))
"""Group → its options and tests."""
_SCRIPTS = {
    **{f"tests/{group}/{name}": text for group, of in _TESTS.items() for name, text in of["tests"].items()},
    "callbacks/failsafe": "echo made safe",
    "tests/planted/setup": "echo set up",
    "tests/planted/cleanup": "echo cleaned up; cat /proc/*/comm 2> /dev/null | grep -cx left-by-test",
    "tests/unprepared/setup": "exit 1",
    "tests/unprepared/cleanup": "echo cleaned up all the same",
}
_DEFAULTS = sample(__file__, "cases/defaults.run")
_RUNFILE = _DEFAULTS + "".join(
    f"\n[tests/{group}]\ntests = {[*of['tests'], *(['gone'] if group == 'planted' else [])]}\n"
    + "".join(f"{key} = {value}".rstrip() + "\n" for key, value in of["options"].items())
    for group, of in _TESTS.items()
)
_OF_ZFS = (
    f"\n[{ZTS}/cli_root/zfs]\ntests = ['zfs_001_neg']\npre = setup\npost = cleanup\ntimeout = 600\ntags = ['zfs']\n"
)


def planted(folder: Path, scripts: dict[str, str], runfile: str) -> Path:
    """A suite of one's own; returns its runfile."""
    for name, script in scripts.items():
        path = folder / f"{name}.sh"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (folder / "own.run").write_text(runfile)
    return folder / "own.run"


def result(run: SuiteRun, path: str, role: str = "test") -> Attempt:
    return [each for each in run.attempts if each.path.endswith(path) and each.role == role][-1]


class Whole:
    """The planted suite, refused for want of a program, and then run."""

    def __init__(self, lab: Laboratory) -> None:
        runfile = planted(lab.folder / "own", _SCRIPTS, _RUNFILE + _OF_ZFS)
        words = ("suite", "run", runfile, "--tests", runfile.parent, "--out", lab.out)
        self.lab = lab
        self.refused = lab.storlab(*words, timeout=300)
        assert not lab.out.exists(), self.refused
        options = ("--allow-missing", "--guests", "2", "--timeout-scale", "1", "--memory", "1G")
        self.said: Ended = lab.storlab(*words, *options, timeout=1100)
        self.run = read_suite_run(lab.out)

    def result(self, path: str, role: str = "test") -> Attempt:
        return result(self.run, path, role)

    def kept(self, path: str, name: str = "stdout", role: str = "test") -> str:
        """A file that was kept of a script."""
        return (self.lab.out / self.result(path, role).folder / name).read_text(errors="replace")

    def failsafe_of(self, killed: Attempt) -> Attempt:
        (found,) = (
            each for each in self.run.attempts if each.role == "failsafe" and each.folder.startswith(killed.folder)
        )
        return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    with opened(Laboratory(tmp_path_factory.mktemp("suite"))) as lab:
        yield Whole(lab)


@pytest.mark.timeout(1800)  # whichever of them is the first waits for the run
@pytest.mark.needs("zfs")
class TestOfTheWholeSuite:
    """Its results, and what is kept and reported of them."""

    def test_every_test_has_its_outcome_and_the_rest_runs_on(self, whole: Whole) -> None:
        outcomes = {key[1].removeprefix(f"{OWN}/"): each.outcome for key, each in whole.run.results.items()}
        unusual = {
            "planted/fails": Outcome.FAIL,
            "planted/skips": Outcome.SKIP,
            "planted/ignores_term": Outcome.KILLED,
            "planted/panics": Outcome.CRASHED,
            "unprepared/never": Outcome.SKIP,
            "killed/killed": Outcome.KILLED,
            "stuck/d_state": Outcome.HUNG,
            "stuck/kills_all": Outcome.CRASHED,
            "off/powers_off": Outcome.CRASHED,
            "loads/eats_memory": Outcome.FAIL,
            "loads/after_another": Outcome.FAIL,
            "ends/setsid": Outcome.KILLED,
            "ends/fills_disk": Outcome.FAIL,
        }
        everything = {f"{group}/{name}": Outcome.PASS for group, of in _TESTS.items() for name in of["tests"]}
        assert outcomes == everything | unusual | {f"{ZTS}/cli_root/zfs/zfs_001_neg": Outcome.PASS}, whole.said
        assert whole.said.status == 4 and "own.run:12: test gone is left out" in whole.said.stderr
        assert "not expected" in whole.said.stdout and whole.run.without_result == []
        assert whole.run.finished is not None

    def test_programs_that_the_image_lacks_are_named_and_may_be_done_without(self, whole: Whole) -> None:
        assert whole.refused.status == 2
        assert "lacks programs that tests seem to call (perf: leaves/calls)" in whole.refused.stderr
        assert "the guest image lacks perf" in whole.said.stderr

    def test_the_environment_of_the_guests_is_recorded(self, whole: Whole) -> None:
        environment = whole.run.asked.environment
        assert environment is not None and environment.kernel and environment.image and environment.accelerator
        assert environment.cpus == 2 and environment.modules["zfs"] and environment.storlab

    def test_each_has_its_cause_and_what_is_killed_is_made_safe(self, whole: Whole) -> None:
        causes = {path: whole.result(path).reason for path in ("/kills_all", "/panics", "/powers_off", "/eats_memory")}
        assert causes == {
            "/kills_all": "the guest powered off: the agent was killed by SIGKILL",
            "/panics": "the guest's kernel panicked: sysrq triggered crash",
            "/powers_off": "the guest powered off",
            "/eats_memory": "it was ended by SIGKILL; memory ran out, and the kernel killed 1 process",
        }
        assert "not even KILL ended it, so its guest was given up" in whole.result("/d_state").reason
        assert "D (disk sleep)" in whole.kept("/d_state", "killed.txt")
        assert "No space left on device" in whole.kept("/fills_disk", "stderr")
        killed = whole.result("/ignores_term")
        # Beside others its disk may have worked, and it takes as long as emulated guests may.
        assert re.search(r"(no disk worked|took longer than \d+ s), and did not end for TERM", killed.reason), killed
        assert "hrtimer_nanosleep" in whole.kept("/ignores_term", "killed.txt")
        assert whole.failsafe_of(killed).outcome is Outcome.PASS
        assert "failsafe" not in whole.said.stdout and b"made safe" in (whole.lab.out / "log").read_bytes()

    def test_a_guest_that_is_lost_is_the_result_of_the_test_that_ran(self, whole: Whole) -> None:
        assert whole.kept("/panics") == "going down\n"
        console = whole.lab.out / "guests" / whole.result("/panics").console / "console.log"
        assert "sysrq triggered crash" in console.read_text(errors="replace")
        attempts = whole.run.attempts
        setups = [each.outcome for each in attempts if each.path == f"{OWN}/planted/setup"]
        assert setups == [Outcome.PASS] * 2  # once more in the fresh guest
        assert len({each.key for each in attempts if each.role == "test"}) == len(whole.run.results)

    def test_once_a_guest_was_lost_a_spare_one_takes_the_place_of_the_next(self, whole: Whole) -> None:
        spare = [attempt for attempt in whole.run.attempts if attempt.console.endswith("-spare-1")]
        served = {attempt.guest for attempt in spare}
        assert len(served) == 1 and served <= {"guest-1", "guest-2"}
        first, lost = min(attempt.started for attempt in spare), (Outcome.CRASHED, Outcome.HUNG)
        assert sum(each.outcome in lost and each.started < first for each in whole.run.attempts) >= 2

    def test_all_processes_of_a_killed_test_end_with_it_and_others_live_until_their_group_is_cleaned_up(
        self, whole: Whole
    ) -> None:
        assert whole.result("/setsid").reason.endswith("did not end for TERM within 10 s")
        assert not [leak for leak in whole.result("/ends/still").leaks if leak.kind == "process"]
        assert whole.kept("/planted/cleanup", role="post") == "cleaned up\n1\n"
        leaks = whole.result("/planted/cleanup", "post").leaks
        assert [(leak.kind, leak.what, leak.by) for leak in leaks] == [
            ("process", "left-by-test", f"{OWN}/planted/after")
        ]

    def test_output_is_kept_as_it_was_printed_and_of_much_the_begin(self, whole: Whole) -> None:
        odd = whole.lab.out / whole.result("/no_newline").folder
        assert (odd / "stdout").read_bytes() == b"one\n\0\xfftwo"
        assert [line[12:] for line in (odd / "log").read_bytes().split(b"\n")] == [b"one", b"\0\xfftwo", b""]
        printed = set(whole.kept("/passes", "merged").split())
        (host,) = printed - {"err", "out", "root"}
        assert len(printed) == 4 and host.startswith(("guest-", "spare-"))
        assert whole.kept("/nobody") == "nobody\ntester\n" and whole.kept("/whoever") == "tester\nroot\n"
        much = whole.result("/prints_much")
        assert (much.outcome, much.dropped) == (Outcome.PASS, _MUCH - MOST)
        assert (whole.lab.out / much.folder / "stdout").stat().st_size == MOST

    def test_tests_whose_set_up_fails_are_skipped_and_cleaned_up(self, whole: Whole) -> None:
        assert whole.result("/unprepared/setup", "pre").outcome is Outcome.FAIL
        assert whole.result("/never").reason == "the set-up of its group did not pass"
        assert whole.result("/unprepared/cleanup", "post").outcome is Outcome.PASS

    def test_what_is_left_behind_is_named_with_who_left_it(self, whole: Whole) -> None:
        leaks = {(leak.by.rpartition("/")[2], leak.kind, leak.what) for leak in whole.result("/tidy").leaks}
        assert leaks == {
            ("pool", "pool", "leftpool"),
            ("pool", "mount", "/leftpool = rw"),
            ("parameter", "parameter", "zfs_txg_timeout = 7, was 5"),
            ("mount", "mount", "/var/tmp/m = rw"),
            ("user", "user", "left-user"),
            ("user", "group", "left-user"),
            ("loop", "device", "loop0"),
            ("memory", "memory", "64 MiB more of files in memory"),
            ("daemon", "process", "left-by-test"),
            ("no_udev", "service", "systemd-udevd was ended"),
        }
        assert "  tests/leaves/pool: pool leftpool\n" in whole.said.stdout
        assert "tests/leaves/user: user left-user" in (whole.lab.out / "report.html").read_text()
        killed = whole.result("/killed/killed")  # of one that was killed: once it was made safe
        assert killed.outcome is Outcome.KILLED and not killed.leaks
        assert [(leak.kind, leak.what, leak.by) for leak in whole.failsafe_of(killed).leaks] == [
            ("group", "left", f"{OWN}/killed/killed")
        ]

    def test_the_run_is_reported_in_every_format(self, whole: Whole) -> None:
        lab = whole.lab

        def report(form: str) -> str:
            return lab.storlab("suite", "report", lab.out, "--format", form).stdout

        console = report("zts")
        lines = [line for line in console.splitlines() if line.startswith("Test: ")]
        assert [line for line in whole.said.stdout.splitlines() if line.startswith("Test: ")] == lines
        assert f"    KILLED {OWN}/planted/panics (expected PASS)" in console
        assert all(line.endswith("]") and len(line) >= 79 for line in lines)
        counts = json.loads(report("json"))["counts"]
        assert counts == {"PASS": 25, "FAIL": 4, "SKIP": 2, "KILLED": 3, "CRASHED": 3, "HUNG": 1}
        assert sum(int(suite.attrib["errors"]) for suite in ElementTree.fromstring(report("junit"))) == 8
        assert "| CRASHED | tests/planted/panics |" in report("md")
        page = (lab.out / "report.html").read_text()
        assert "the guest&#39;s kernel panicked" in page and "src=" not in page
        assert "not a study" in lab.storlab("report", lab.out).stderr or lab.storlab("report", lab.out).status == 2
