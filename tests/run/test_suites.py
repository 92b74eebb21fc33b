"""``storlab suite`` on real guests: planted tests, kernels of one's own, a program ``check``, a guest that is held."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from laboratory import Ended, Laboratory, ended, opened
from laboratory.guests import own_kernel
from laboratory.samples import sample
from storlab.images.image import find_image
from storlab.suites.model import Attempt, Outcome
from storlab.suites.records.folder import SuiteRun, read_suite_run
from storlab.suites.run.hold import symbols_of

OWN = "/usr/local/share/storlab-suite/tests"
_TESTS: dict[str, dict[str, dict[str, str]]] = tomllib.loads(sample(__file__, "cases/planted-tests.toml"))
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
        runfile = planted(lab.folder / "own", _SCRIPTS, _RUNFILE)
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
        assert outcomes == everything | unusual, whole.said
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

    def test_output_is_kept_as_it_was_printed(self, whole: Whole) -> None:
        odd = whole.lab.out / whole.result("/no_newline").folder
        assert (odd / "stdout").read_bytes() == b"one\n\0\xfftwo"
        assert [line[12:] for line in (odd / "log").read_bytes().split(b"\n")] == [b"one", b"\0\xfftwo", b""]
        printed = set(whole.kept("/passes", "merged").split())
        (host,) = printed - {"err", "out", "root"}
        assert len(printed) == 4 and host.startswith(("guest-", "spare-"))
        assert whole.kept("/nobody") == "nobody\ntester\n" and whole.kept("/whoever") == "tester\nroot\n"

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
        assert counts == {"PASS": 23, "FAIL": 4, "SKIP": 2, "KILLED": 3, "CRASHED": 3, "HUNG": 1}
        assert sum(int(suite.attrib["errors"]) for suite in ElementTree.fromstring(report("junit"))) == 8
        assert "CRASHED tests/planted/panics" in report("md")
        page = (lab.out / "report.html").read_text()
        assert "the guest&#39;s kernel panicked" in page and "src=" not in page
        assert "not a study" in lab.storlab("report", lab.out).stderr or lab.storlab("report", lab.out).status == 2


@pytest.mark.needs("guests")
def test_each_fresh_guest_boots_a_kernel_of_ones_own_and_a_replay_has_guests_as_before(lab: Laboratory) -> None:
    release = find_image().release
    kernel, modules = own_kernel(lab.folder)
    shutil.copy(kernel, lab.folder / "bzImage")
    lab.environment["XDG_CACHE_HOME"] = str(lab.folder / "cache")
    suite = lab.folder / "suite.toml"
    # Their paths are seen from the file.
    suite.write_text(sample(__file__, "cases/own-kernel.toml", modules=modules.relative_to(lab.folder)))
    guest = ("--cpus", "1", "--memory", "640M", "--timeout-scale", "2.5")
    said = lab.storlab("suite", "run", suite, *guest, "--out", lab.out, timeout=300)
    assert said.status in (0, 3), said
    run = read_suite_run(lab.out)
    results = {key[1].rpartition("/")[2]: each for key, each in run.results.items()}
    outcomes = {"first": Outcome.PASS, "crashes": Outcome.CRASHED, "last": Outcome.PASS}
    assert {name: each.outcome for name, each in results.items()} == outcomes, said
    assert (lab.out / results["first"].folder / "stdout").read_text() == f"{release}\n"
    environment = run.asked.environment
    assert environment is not None and environment.image.startswith(f"own-{release}-") and run.others == ()
    assert run.asked.kernel is not None and run.asked.kernel.image == str(lab.folder / "bzImage")
    again = lab.folder / "again"
    said = lab.storlab("suite", "run", "--replay", lab.out, "--test", "first", "--out", again, timeout=300)
    asked = read_suite_run(again).asked
    assert said.status == 0 and asked.kernel == run.asked.kernel, said
    assert (asked.cpus, asked.memory, asked.scale) == (1, 640 << 20, 2.5)


# As xfstests: a program that compares what tests print with what they are to print, and keeps what differs.
CHECK = sample(__file__, "cases/check.sh")
_MOUNTS = (
    "[ $MINE = yes ] && mount $TEST_DEV $TEST_DIR && touch $TEST_DIR/f && ls $TEST_DIR | grep f$; umount $TEST_DIR"
)
_BEGIN = "_begin_fstest() { :; }\n_begin_fstest"
CHECKED = {  # with what each is to print
    "own/001": (f"{_BEGIN} auto quick\n{_MOUNTS}\n", "f\n"),
    "own/002": (f"{_BEGIN} auto\necho wrong; echo everything > $seqres.full\n", "right\n"),
    "own/003": (f"{_BEGIN} auto quick\necho no such device > $seqres.notrun\n", ""),
    "own/004": (f"{_BEGIN} dangerous\necho b > /proc/sysrq-trigger\n", ""),
}
CHECK_FILE = sample(__file__, "cases/checkout.toml")


@pytest.mark.needs("guests")
def test_a_checkout_with_a_program_check_runs_test_by_test(lab: Laboratory) -> None:
    folder = lab.folder / "checkout"
    (folder / "tests/own").mkdir(parents=True)
    for name, text in {"check": CHECK, **{f"tests/{name}": test for name, (test, _) in CHECKED.items()}}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name, (_, printed) in CHECKED.items():
        (folder / "tests" / f"{name}.out").write_text(printed)
    suite = lab.folder / "suite.toml"
    suite.write_text(CHECK_FILE)
    said = lab.storlab("suite", "run", suite, "--retries", "1", "--out", lab.out, timeout=300)
    results = {key[1].rpartition("tests/")[2]: each for key, each in read_suite_run(lab.out).results.items()}
    outcomes = {"own/001": Outcome.PASS, "own/002": Outcome.FAIL, "own/003": Outcome.SKIP}
    assert {name: each.outcome for name, each in results.items()} == outcomes, said
    assert results["own/003"].reason == "no such device" and "output mismatch" in results["own/002"].reason
    assert results["own/002"].number == 2 and said.status == 3
    kept = lab.out / results["own/002"].folder
    assert (kept / "002.out.bad").read_text() == "wrong\n" and (kept / "002.full").read_text() == "everything\n"


SUITE = """
folder = "tests"
[guests]
memory = "640M"
cpus = 1
disks = 0
[groups.own]
tests = [{ name = "fails", run = "sleep 0.1; false" }]
"""


def test_symbols_come_from_an_elf_kernel_its_build_tree_or_an_installed_package(tmp_path: Path) -> None:
    built = tmp_path / "linux/arch/x86/boot/bzImage"
    installed, plain = tmp_path / "debug/boot/vmlinux-6.12.1-x", tmp_path / "boot/vmlinuz-6.12.1-x"
    for path in (built, installed, plain, tmp_path / "vmlinux"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF" if path.name.startswith("vmlinux") else b"MZ")

    def found(kernel: Path | None, release: str = "6.12.1-y") -> str | None:
        return symbols_of(None if kernel is None else str(kernel), release, str(tmp_path / "debug"))

    assert found(tmp_path / "vmlinux") == str(tmp_path / "vmlinux")
    assert found(None) is found(plain) is found(built) is None
    assert found(None, "6.12.1-x") == found(plain, "6.12.1-x") == found(built, "6.12.1-x") == str(installed)
    (tmp_path / "linux/vmlinux").write_bytes(b"\x7fELF")
    assert found(built, "6.12.1-x") == str(tmp_path / "linux/vmlinux")


@pytest.mark.needs("guests", "gdb")
def test_gdb_attaches_by_what_is_printed_and_the_run_continues_after_the_shell(lab: Laboratory) -> None:
    suite = lab.folder / "suite.toml"
    suite.write_text(SUITE)
    (lab.folder / "tests").mkdir()
    words = ("suite", "run", suite, "--debug", "--timeout-scale", "2.5", "--out", lab.out)
    running = lab.start(*words, stdin=subprocess.PIPE)
    assert running.stdin is not None and running.stderr is not None
    said: list[bytes] = []
    while not said or b"A shell in it" not in said[-1]:
        said.append(running.stderr.readline())
        assert said[-1], said
    (attach,) = (line.decode() for line in said if line.startswith(b"gdb "))
    argv = [*shlex.split(attach), "-batch", "-ex", "bt 1", "-ex", "detach"]
    attached = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    # In the kernel, or in a program of the guest.
    assert attached.stdout.count("\n#0  ") == 1 and "detached" in attached.stdout, attached
    running.stdin.write(b"exit\n")
    done = ended(running, 120)
    assert done.status == 3 and "1 FAIL" in done.stdout, done
