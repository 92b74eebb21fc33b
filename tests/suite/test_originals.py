"""The options, texts and folders of test-runner.py and zfs-tests.sh: what they choose, leave and refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import typer

from storlab.base.errors import UserError
from storlab.cli.suite.as_original import Original, Ran, _configuration, _printer, finish_zfs_tests
from storlab.cli.suite.options import OriginalOptions
from storlab.suites.groups import Installed
from storlab.suites.model import Attempt, Expectation, Expectations, Group, Outcome, Role, Script, Suite
from storlab.suites.originals import (
    Around,
    configuration,
    dry_run,
    failed_only,
    output_folder,
    single_test,
    suite_of_paths,
    tags_of,
    template,
)
from storlab.suites.records.folder import SuiteRun
from storlab.suites.run import suite_run
from storlab.suites.run.classic import ClassicFolder
from storlab.suites.run.execution import Ended
from storlab.suites.run.plan import Asked
from storlab.suites.runfile import Runfile, read_suite
from storlab.suites.selection import repeated
from storlab.suites.zts_text import console_line, failed_maybes, report, report_status
from study.program import call
from suite.samples import BEGAN, HERE, INSTALLED, SUITE, attempt

POOL = f"{HERE}/tests/pool"


def test_paths_are_tests_each_by_itself_or_folders_as_groups() -> None:
    around = Around(pre="setup", user="root", timeout=0, tags=("x",))
    flat = suite_of_paths("x", [POOL], around, INSTALLED, HERE, grouped=False)
    scripts = [f"{POOL}/{name}.ksh" for name in ("cleanup", "create", "destroy", "rename", "setup")]
    assert [group.name for group in flat.groups] == scripts
    assert flat.groups[0].timeout is None and output_folder(flat.groups[1], flat.groups[1].tests[0]) == "create.ksh"
    (group,) = suite_of_paths("x", [POOL], around, INSTALLED, HERE, grouped=True).groups
    assert [test.path for test in group.tests] == scripts[:-1]
    assert group.pre is not None and output_folder(group, group.pre) == "pool/setup"
    assert output_folder(group, group.tests[0]) == "pool/cleanup.ksh"


def test_a_path_without_anything_to_execute_and_an_unknown_user_are_absent() -> None:
    suite = suite_of_paths("x", [f"{POOL}/gone", f"{POOL}/plain"], Around(), INSTALLED, HERE, grouped=False)
    assert [str(each).partition(": ")[0] for each in suite.absent] == ["command line"] * 2 and not suite.groups
    suite = suite_of_paths("x", [POOL], Around(user="bob"), INSTALLED, HERE, grouped=True)
    assert [(each.tests, "unknown user 'bob'" in each.what) for each in suite.absent] == [(5, True)]


def test_what_failed_or_was_killed_by_a_log_is_run_again_and_all_of_a_group_whose_set_up_failed() -> None:
    attempts = (
        replace_path(f"{HERE}/tests/acl/allow", Outcome.KILLED, "Linux"),
        replace_path(f"{POOL}/setup", Outcome.FAIL),
    )
    left = failed_only(SUITE, "".join(console_line(each, "tester") for each in attempts), "log")
    assert [(group.name, len(group.tests)) for group in left.groups] == [("tests/acl:Linux", 1), ("tests/pool", 3)]
    with pytest.raises(UserError, match="log: it has no line of a test that failed"):
        failed_only(SUITE, "nothing", "log")
    with pytest.raises(UserError, match="none of the tests that failed there is in ours"):
        failed_only(SUITE, console_line(replace_path("/a/b", Outcome.FAIL), "x"), "log")


@pytest.mark.parametrize("place", ["/home/me/zfs/tests", "/usr/local/share/zfs"])
@pytest.mark.parametrize("script", ["one", "setup"])
def test_what_failed_by_a_log_is_found_wherever_the_suite_is_installed(place: str, script: str) -> None:
    below = "zfs-tests/tests/functional/pool"
    here = f"/usr/share/zfs/{below}"
    group = Group("tests/functional/pool", (Script(f"{here}/one", "root"),), Script(f"{here}/setup", "root"))
    log = console_line(replace_path(f"{place}/{below}/{script}", Outcome.FAIL), "me")
    assert failed_only(Suite("zts", (group,)), log, "log").groups == (group,)


def replace_path(path: str, outcome: Outcome, identifier: str = "") -> Attempt:
    return msgspec.structs.replace(attempt("x", outcome), path=path, identifier=identifier)


def test_iterations_repeat_all_groups_into_the_same_folders() -> None:
    suite = repeated(SUITE, 2)
    assert len({group.name for group in suite.groups}) == 6
    again = suite.groups[-1]
    assert again.name == "tests/pool (iteration 2)" and output_folder(again, again.tests[0]) == "pool/create"


def test_a_template_is_a_runfile_that_is_the_same_suite_and_a_dry_run_describes_each_script_in_order() -> None:
    read = read_suite("ours", [Runfile("t.run", template(SUITE))], INSTALLED, HERE)

    def plain(groups: object) -> list[object]:
        return [replace(group, line=None, tests=(), pre=None, post=None, failsafe=None) for group in groups]  # type: ignore[attr-defined]

    assert plain(read.groups) == plain(SUITE.groups) and read.notes != ()
    paths, of_suite = ([[test.path for test in group.tests] for group in each.groups] for each in (read, SUITE))
    assert paths == of_suite
    described = dry_run(SUITE, "/out/T")
    first = f"Pathname: {HERE}/tests/acl/setup\nIdentifier: Linux\nOutputdir: /out/T/acl:Linux/setup\n"
    assert described.startswith(f"{first}Timeout: 0\nUser: root\n")
    assert described.count("Pathname: ") == 9


def test_a_fraction_of_the_tags_is_what_awk_leaves_of_them() -> None:
    text = "".join(f"[{tag}]\ntags = ['functional', '{tag}']\n" for tag in "abcde")
    assert [tags_of(f"{part}/3", [text, text]) for part in (1, 2, 3)] == ["c", "a,d", "b,e"]
    assert tags_of("functional", [text]) == "functional"
    for wrong in ("0/3", "4/3", "1/9"):
        with pytest.raises(UserError, match=wrong if wrong != "1/9" else "no tag is in this part"):
            tags_of(wrong, [text])


def test_a_single_test_is_found_by_its_path_or_the_beginning_of_its_name() -> None:
    for name in ("crea", "tests/pool/create.ksh", f"{POOL}/create"):
        suite = read_suite("x", [single_test(name, "nobody", INSTALLED, HERE)], INSTALLED, HERE)
        (group,) = suite.groups
        assert group.tests[0].file == f"{POOL}/create.ksh" and group.tests[0].user == "nobody"
        assert (group.pre and group.pre.path, group.timeout) == (f"{POOL}/setup", 600)
    with pytest.raises(UserError, match="couldn't find test matching 'zzz'"):
        single_test("zzz", "root", Installed(), HERE)


def test_without_maybes_a_test_that_may_fail_is_not_expected_to() -> None:
    may = Expectations(maybe={"pool/a": Expectation("pool/a", Outcome.FAIL, "now and then", False)})
    failed = attempt("pool/a", Outcome.FAIL)
    assert "FAIL pool/a (now and then)" in report([failed], may)
    assert report([failed], may, maybes=False).endswith("    FAIL pool/a (expected PASS)\n")
    assert failed_maybes([failed], may) == [failed]
    assert failed_maybes([failed, attempt("pool/b", Outcome.FAIL)], may) == []


MAY_OR_DOES_FAIL = Expectations(
    known={"pool/known": Expectation("pool/known", Outcome.FAIL, "some day", True)},
    maybe={
        "pool/may": Expectation("pool/may", Outcome.FAIL, "now and then", False),
        "pool/skips": Expectation("pool/skips", Outcome.SKIP, "now and then", False),
    },
)


@pytest.mark.parametrize(
    ("results", "status", "without_maybes"),
    [
        ({"may": Outcome.PASS, "other": Outcome.PASS}, 0, 0),
        ({"known": Outcome.FAIL, "skips": Outcome.SKIP}, 0, 0),
        ({"known": Outcome.FAIL, "may": Outcome.FAIL}, 0, 2),
        ({"may": Outcome.FAIL, "other": Outcome.FAIL}, 1, 1),
        ({"may": Outcome.KILLED}, 1, 1),
        ({"may": Outcome.CRASHED}, 1, 1),
    ],
)
def test_the_exit_status_is_that_of_zts_report(results: dict[str, Outcome], status: int, without_maybes: int) -> None:
    attempts = [attempt(f"pool/{name}", outcome) for name, outcome in results.items()]
    assert report_status(attempts, MAY_OR_DOES_FAIL, maybes=True) == status
    assert report_status(attempts, MAY_OR_DOES_FAIL, maybes=False) == without_maybes


@pytest.mark.parametrize(("rerun", "missing", "status"), [(True, 0, 2), (True, 1, 4), (False, 0, 0), (False, 1, 4)])
def test_tests_that_failed_again_when_rerun_end_in_2_unless_results_are_missing(
    rerun: bool, missing: int, status: int, tmp_path: Path
) -> None:
    run = mock.Mock(spec=SuiteRun)
    run.attempts, run.expectations = (attempt("pool/may", Outcome.FAIL),), MAY_OR_DOES_FAIL
    run.without_result, run.asked = missing, mock.Mock(absent=())
    ran = Ran(run, ClassicFolder(tmp_path / "out", datetime.now()), "", Ended(tmp_path, False))
    run_again = mock.patch("storlab.cli.suite.as_original.run_original", return_value=ran)
    with run_again as again, pytest.raises(typer.Exit) as ended:
        finish_zfs_tests(Asked(()), Original(tmp_path), ran, rerun=rerun, out=None)
    assert (ended.value.exit_code, again.called) == (status, rerun and not missing)


def test_what_tests_print_is_shown_as_text_whatever_a_guest_puts_into_it(capfd: pytest.CaptureFixture[str]) -> None:
    show = _printer()
    for piece in (b"\x1b]0;title\x07\x1b[2Jred \xc3", b"\xa4\n", b"\xff end\n"):
        show(piece)
    said = capfd.readouterr().err
    assert "red ä\n" in said and "end\n" in said
    assert all(sign.isprintable() or sign == "\n" for sign in said)


@pytest.mark.parametrize("arguments", [("test-runner", f"{POOL}/create"), ("zfs-tests", "-v")])
def test_a_note_says_where_debugging_information_of_time_outs_is_kept(arguments: tuple[str, ...]) -> None:
    with mock.patch("storlab.cli.suite.as_original.run_original", side_effect=UserError("no guest here")) as run:
        ran = call("suite", *arguments, "-O")
    assert ran.message.startswith("Note: -O writes nothing to /dev/kmsg") and "killed.txt" in ran.message, ran
    _, original, _ = run.call_args.args
    assert original.options.timeout_debug


def test_the_configuration_is_aligned_as_by_the_original_and_names_options_that_were_given() -> None:
    record = mock.Mock(variables={}, testdir="/suite")
    shown = {"RUNFILES": "r", "FILES": "f", "FILESIZE": "4G", "ITERATIONS": "1", "TAGS": "t", "STACK_TRACER": "no"}
    options = (OriginalOptions(kmsg=True, timeout_debug=given) for given in (True, False))
    with_it, without = (_configuration(record, Original(Path(), given, shown=shown)) for given in options)
    assert ' -K -O -c "r"' in with_it and with_it.replace(" -O", "") == without
    lines = configuration({"DISKS": "a b"}, shown, ["x", "", "-c"]).splitlines()
    assert lines[:3] == ["", "--- Configuration ---", "Runfiles:        r"]
    assert "NUM_DISKS:       2" in lines and "Missing util(s): " in lines and lines[-1] == "x  -c"


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["test-runner"], {}, "nothing to run"),
        (["test-runner", "-c", "a.run", "x"], {}, "Extraneous arguments"),
        (["test-runner", "-c", "gone.run"], {}, "Couldn't read config files: gone.run"),
        (["test-runner", "-Om", "x"], {}, "kmemleak needs a kernel with CONFIG_DEBUG_KMEMLEAK"),
        (["test-runner", "-l", "gone.log", "x"], {}, "cannot read gone.log"),
        (["zfs-tests", "-Om"], {}, "kmemleak needs a kernel"),
        (["zfs-tests"], {"NFS": "1"}, "NFS: performance tests over NFS need a second machine"),
        (["zfs-tests"], {"NFS_USER": "me", "NFS_MOUNT": "/m", "NFS_X": ""}, "NFS_MOUNT, NFS_USER: performance tests"),
        (["zfs-tests", "-n", "nfs.cfg"], {}, "-n: performance tests over NFS need a second machine"),
        (["zfs-tests"], {"DISKS": "sda sdb sdc"}, "DISKS names disks of this machine"),
        (["zfs-tests", "-t", "x", "-T", "y"], {}, "-t and -T are mutually exclusive."),
        (["zfs-tests", "-r", "mine"], {}, "Cannot find runfile: mine"),
        (["zfs-tests"], {"RUNFILES": "mine.run"}, "Cannot find runfile: mine.run"),
        (["zfs-tests", "-s", "large"], {}, "-s large: write a size"),
    ],
)
def test_what_can_not_be_is_refused_before_a_guest_is_started(
    arguments: list[str], environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with mock.patch.object(suite_run, "open_session", side_effect=AssertionError("a guest was wanted")):
        ran = call("suite", *arguments)
    assert ran.status == 2 and ran.message.count("\n") == 1 and says in ran.message, ran


POOL_GROUP, DISK_GROUP = "tests/pool", "tests/disk"


class Folder:
    """A folder in the making, and a way to say that a script of ours has ended."""

    def __init__(self, base: Path) -> None:
        self.records = base / "records"
        self.classic = ClassicFolder(base / "classic", datetime(2026, 1, 2, tzinfo=UTC))
        self.classic.begin(SUITE.groups)

    def ended(self, group: str, path: str, role: Role = "test", outcome: Outcome = Outcome.PASS) -> None:
        """A script ended; it printed which group it was run for."""
        place = self.records / group / path
        place.mkdir(parents=True)
        (place / "stdout").write_text(f"{path} of {group}\n")
        folder = str(place.relative_to(self.records))
        done = Attempt(group, f"{HERE}/{path}", role, outcome, BEGAN, 1.5, user="root", folder=folder)
        self.classic.add(done, "x", self.records)

    @property
    def logged(self) -> list[str]:
        """The scripts in the order of ``log``."""
        return [line.split()[1] for line in (self.classic.path / "log").read_text().splitlines()]


def test_a_killed_test_waits_for_the_failsafe_of_its_own_group_while_other_guests_go_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.ended(POOL_GROUP, "tests/pool/setup", "pre")
    folder.ended(POOL_GROUP, "tests/pool/destroy", outcome=Outcome.KILLED)
    folder.ended(DISK_GROUP, "tests/disk/write", outcome=Outcome.KILLED)
    folder.ended(POOL_GROUP, "callbacks/failsafe", "failsafe")
    folder.ended(DISK_GROUP, "callbacks/failsafe", "failsafe")
    folder.ended(POOL_GROUP, "tests/pool/rename")
    for name, group in (("pool/destroy", POOL_GROUP), ("disk/write", DISK_GROUP)):
        printed = folder.classic.path / name / "failsafe" / "stdout"
        assert printed.read_text() == f"callbacks/failsafe of {group}\n"
    assert not (folder.classic.path / "pool/create").exists()
    names = ("tests/pool/setup", "callbacks/failsafe", "tests/pool/destroy", "callbacks/failsafe", "tests/disk/write")
    assert folder.logged == [f"{HERE}/{name}" for name in (*names, "tests/pool/rename")]


def test_nobody_else_may_write_there_and_links_that_others_laid_are_not_followed(tmp_path: Path) -> None:
    base = tmp_path / "classic"
    base.mkdir(mode=0o777)
    base.chmod(0o777)  # as the original leaves it
    folder = Folder(tmp_path)
    assert folder.classic.path.stat().st_mode & 0o7777 == 0o755
    mine = tmp_path / "mine"
    mine.write_text("kept\n")
    folder.classic.path.rename(base / "taken")
    folder.classic.path.mkdir()
    for name in ("log", "results"):
        (folder.classic.path / name).symlink_to(mine)
    folder.ended(POOL_GROUP, "tests/pool/create")
    folder.classic.write_results("all of it\n")
    assert mine.read_text() == "kept\n" and (base / "taken/results").read_text() == "all of it\n"
    assert "tests/pool/create" in (base / "taken/log").read_text()


def test_killed_tests_whose_failsafe_never_ran_are_logged_at_the_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.ended(POOL_GROUP, "tests/pool/create", outcome=Outcome.KILLED)
    folder.ended(DISK_GROUP, "tests/disk/write", outcome=Outcome.KILLED)
    folder.classic.flush()
    folder.classic.flush()
    assert folder.logged == [f"{HERE}/tests/pool/create", f"{HERE}/tests/disk/write"]
