"""What a user says of suites: own files in TOML, what is expected of tests, and variables of tests/perf."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest
from msgspec import structs
from tools.suite_reference import EXPECTATIONS, reference

from attacks.odd_files import bounded
from storlab.base.errors import StudyError, UserError
from storlab.cli.suite.measuring import VARIABLES, measuring, perf_variables
from storlab.cli.suite.options import USUAL_CPUS, USUAL_MEMORY, size_of
from storlab.suites.adapters.zts import Zts
from storlab.suites.expectations import OwnEntry, with_own
from storlab.suites.groups import Installed
from storlab.suites.model import Expectation, Expectations, Outcome, Suite, SuiteEnvironment
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.report.formats import render
from storlab.suites.report.view import view_of
from storlab.suites.run.own_files import adapter_of, folder_of, own_runfile, read_own_expectations, read_suite_file
from storlab.suites.run.plan import Asked
from storlab.suites.suite_file import CPUS, MEMORY
from study.program import call
from suite.samples import HERE, SUITE, of, recorded, written

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "suite" / "own.toml"
PAGE = ROOT / "docs" / "reference" / "suite-file.md"
ONE = "[groups.a]\ntests = ['t']\n"


def groups_of(text: str, *files: str, users: tuple[str, ...] = ("root", "nobody")) -> Suite:
    there = frozenset(f"{OWN_TESTS}/{file}" for file in files)
    return read_suite_file(text, "x.toml").groups("x", (), Installed(there, frozenset(), frozenset(users)))


def test_the_reference_is_up_to_date_and_all_commands_and_files_give_guests_the_same_memory() -> None:
    assert PAGE.read_text() == reference(), "again: python -m tools.suite_reference > docs/reference/suite-file.md"
    assert size_of(USUAL_MEMORY) == MEMORY == Asked(()).memory and USUAL_CPUS == CPUS == Asked(()).cpus


def test_the_examples_are_whole() -> None:
    assert len(read_own_expectations(EXPECTATIONS)) == 2
    runfile = own_runfile(str(EXAMPLE))
    assert runfile is not None
    suite = read_suite_file(runfile.text, runfile.name)
    folder = folder_of(suite)
    assert folder is not None
    there = [f"{OWN_TESTS}/{file.relative_to(folder)}" for file in folder.rglob("*") if os.access(file, os.X_OK)]
    found = suite.groups("own", (), Installed(frozenset(there)))
    assert found.absent == () and {group.name: len(group.tests) for group in found.groups} == {"scrub": 2, "xfs": 3}
    assert suite.needs().disks == 2 and suite.needs().disk_size == 1024**3


def test_groups_come_in_the_order_of_the_file_and_inherit_the_defaults() -> None:
    text = "[defaults]\npre = 'setup'\ntimeout = '2 min'\ntags = ['x']\nuser = 'nobody'\n[groups.b]\ntests = ['t']\n"
    text += "[groups.a]\ntests = [{ name = 'u', run = 'true' }]\npre = ''\ntimeout = 0\ntags = []\n"
    b, a = groups_of(text, "b/t.sh", "b/setup").groups
    assert (b.name, b.timeout, b.tags, b.folder, b.line) == ("b", 120, ("x",), "b", 7)
    assert b.pre is not None and (b.pre.file, b.pre.user, b.pre.line) == (f"{OWN_TESTS}/b/setup", "root", 2)
    assert (b.tests[0].path, b.tests[0].file, b.tests[0].user) == (f"{OWN_TESTS}/b/t", f"{OWN_TESTS}/b/t.sh", "nobody")
    assert (a.pre, a.timeout, a.tags, a.tests[0].run) == (None, None, (), "true")


def test_what_is_absent_is_named_with_file_and_line_and_the_rest_is_kept() -> None:
    text = "[groups.a]\ntests = [\n  't',\n  'gone',\n]\n[groups.b]\npost = 'cleanup'\ntests = ['t']\n"
    suite = groups_of(text, "a/t", "b/t")
    assert [str(each) for each in suite.absent] == [
        f"x.toml:4: test gone is left out: there is no gone or gone.ksh or gone.sh in {OWN_TESTS}/a",
        f"x.toml:6: group b is left out: post: there is no cleanup or cleanup.ksh or cleanup.sh in {OWN_TESTS}/b",
    ]
    assert [group.name for group in suite.groups] == ["a"]
    assert "unknown user 'bob'" in groups_of(ONE + "user = 'bob'\n", "a/t").absent[0].what


def test_all_of_it_is_known_before_a_guest_is_started(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(f"folder = 'gone'\n{ONE}")
    ran = call("suite", "run", str(tmp_path / "x.toml"))
    assert (ran.status, ran.message) == (2, f"{tmp_path}/x.toml: line 1: folder: {tmp_path}/gone is no folder\n")
    ran = call("suite", "run", "zts", str(tmp_path / "x.toml"))
    assert ran.status == 2 and ran.message.endswith("a suite file stands alone: leave out the other names\n")


def test_scripts_run_as_their_user_and_statuses_mean_what_the_file_says() -> None:
    suite = read_suite_file("skip = [99]\nenvironment = { A = 'b' }\n" + ONE + "user = 'nobody'\n", "x.toml")
    test = groups_of(ONE + "user = 'nobody'\n", "a/t").groups[0].tests[0]
    launch = suite.launch(test, {"TMPDIR": "/var/tmp", "DISKS": "vda"})
    assert launch.argv == ("runuser", "-u", "nobody", "--", f"{OWN_TESTS}/a/t")
    assert (launch.env["A"], launch.env["DISKS"], launch.env["USER"], launch.cwd) == ("b", "vda", "nobody", "/var/tmp")
    came = {0: Outcome.PASS, 99: Outcome.SKIP, 4: Outcome.FAIL, None: Outcome.FAIL}
    assert {code: suite.judge(test, code, str)[0] for code in came} == came


def test_scripts_of_the_adapter_zts_find_what_those_of_the_zfs_test_suite_do() -> None:
    suite = adapter_of([own] if (own := own_runfile(str(EXAMPLE))) else [], None)
    zts = read_suite_file("adapter = 'zts'\n[groups.a]\ntests = [{ name = 't', run = 'exit 4' }]\n", "x.toml")
    test = zts.groups("x", (), Installed()).groups[0].tests[0]
    launch = zts.launch(test, {})
    assert launch.argv[:2] == ("sh", "-c") and launch.env["SUDO_USER"] == "tester"
    assert zts.judge(test, 77, str)[0] is Outcome.FAIL and suite.judge(test, 77, str)[0] is Outcome.SKIP
    assert "zfs" in zts.needs().modules
    assert adapter_of([], None).files("zts-sanity") == ("/usr/share/zfs/runfiles/sanity.run",)


def test_a_list_of_nothing_but_wrong_words_is_one_mistake_and_told_at_once() -> None:
    text = f'adapter = "command"\n[guests]\nprograms = [{"1," * 35_000}]\n[groups.a]\ntests = ["true"]\n'
    with bounded(20), pytest.raises(StudyError) as refused:
        read_suite_file(text, "x.suite.toml")
    assert str(refused.value) == "x.suite.toml: line 3: guests.programs.0: 1 should be text in quotes"


DAY = dt.date(2026, 5, 1)
ACL, POOL = f"{HERE}/tests/acl/allow", f"{HERE}/tests/pool/create"
GUESTS = SuiteEnvironment(kernel="6.12.117+deb12-amd64", modules={"zfs": "2.3.2-2"})


def entry(tests: str = "acl/*", **fields: object) -> OwnEntry:
    return structs.replace(OwnEntry((tests,), Outcome.FAIL, "issue 1"), **fields)


def excused(*own: OwnEntry, tables: Expectations = Expectations(), day: dt.date = DAY) -> Expectations:  # noqa: B008
    return with_own(tables, own, [(ACL, "acl/allow"), (POOL, "pool/create")], GUESTS, day)


def test_an_entry_is_about_what_its_pattern_matches_and_counts_in_place_of_the_suites_own_table() -> None:
    assert not entry(kernel="6.*").holds_in(None) and entry().holds_in(None)
    assert excused(entry()).maybe == {"acl/allow": Expectation("acl/allow", Outcome.FAIL, "issue 1", False)}
    assert excused(entry("*", always=True)).known.keys() == {"acl/allow", "pool/create"}
    theirs = Expectations({"acl/allow": Expectation("acl/allow", Outcome.SKIP, "theirs", True)})
    merged = excused(entry(reason="first"), entry(reason="second"), tables=theirs)
    assert not merged.known and merged.maybe["acl/allow"].reason == "first"
    assert excused(entry("pool/*"), tables=theirs).known == theirs.known


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"kernel": "6.12.*"}, True), ({"kernel": "6.13.*"}, False), ({"zfs": "2.3.*"}, True), ({"zfs": "2.2*"}, False),
        ({"until": "2026-05-01"}, True), ({"until": "2026-04-30"}, False),
    ],
)  # fmt: skip
def test_an_entry_holds_until_its_day_and_where_it_says(fields: dict[str, str], counts: bool) -> None:
    assert bool(excused(entry(**fields)).maybe) == counts


def test_a_report_with_a_list_says_what_is_expected_and_which_entries_are_idle(tmp_path: Path) -> None:
    run = written(tmp_path, SUITE, of(SUITE, 0, Outcome.FAIL, code=1))
    assert len(view_of(run).unexpected) == 1
    (tmp_path / "mine.toml").write_text(
        '[[expect]]\ntests = "acl/*"\noutcome = "FAIL"\nreason = "issue 1"\n'
        '[[expect]]\ntests = "*"\noutcome = "FAIL"\nreason = "old"\nuntil = 2020-01-01\n'
        '[[expect]]\ntests = ["gone"]\noutcome = "SKIP"\nreason = "no device"\n'
    )
    said = call("suite", "report", str(tmp_path), "--expect", str(tmp_path / "mine.toml")).output
    assert "Not expected" not in said and "expected: issue 1" in said
    assert "not expected any more, its last day was 2020-01-01: * (FAIL, old)" in said
    assert "matches no test of this run: gone (SKIP, no device)" in said
    for form in ("md", "html"):
        text = call("suite", "report", str(tmp_path), "-f", form, "--expect", str(tmp_path / "mine.toml")).output
        assert "its last day was 2020-01-01" in text.replace("\\", "")


def test_a_pass_that_is_never_to_come_is_reported(tmp_path: Path) -> None:
    run = recorded(written(tmp_path, SUITE, of(SUITE, 0)), own=(entry("*", always=True),))
    (row,) = view_of(run).unexpected
    assert row.why == "it was expected not to pass" and "not to pass" in render(run, "text")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expect"),
        ('[[expect]]\ntests = "a"\nreason = "x"\n', r"mine.toml: line 1: expect.0.outcome"),
        ('[[expect]]\ntests = "a"\noutcome = "PASS"\nreason = "x"\n', r"mine.toml: line 3: expect.0.outcome"),
        ('[[expect]]\ntests = []\noutcome = "FAIL"\nreason = "x"\n', r"mine.toml: line 2: expect.0.tests"),
        ('[[expect]]\ntests = "a"\noutcome = "FAIL"\nreason = ""\n', r"mine.toml: line 4: expect.0.reason"),
        ('[[expect]]\ntests = "a"\noutcome = "FAIL"\nreason = "x"\nuntil = "soon"\n', "line 5: expect.0.until"),
        ('[[expect]]\ntest = "a"\noutcome = "FAIL"\nreason = "x"\n', r"mine.toml: line 2: expect.0.test"),
    ],
)
def test_what_is_wrong_with_a_list_is_named_with_line_and_key(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=said):
        read_own_expectations(path)
    written(tmp_path / "run", SUITE, of(SUITE, 0, Outcome.FAIL, code=1))
    ended = call("suite", "report", str(tmp_path / "run"), "--expect", str(path))
    assert ended.status == 2 and "Traceback" not in ended.message


def test_known_variables_are_taken_and_those_of_other_programs_are_left_alone() -> None:
    given = {"PERF_RUNTIME": "5", "PERF_NTHREADS": "8 16", "PERF_NTHREADS_PER_FS": "0 1 8"}
    given |= {"PERF_FS_OPTS": "-o recsize=1m", "ZINJECT_DELAYS": "10:1"}
    others = {"PERF_IOSIZES": "", "HOME": "/root", "PERF_PAGER": "less", "PERFPOOL": "other"}
    assert perf_variables(given | others) == given


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PERF_RUNTIME", "0", "PERF_RUNTIME: '0' is not valid; an example: 180, in seconds"),
        ("PERF_NTHREADS", "8 many", "PERF_NTHREADS: 'many' is not valid; an example: \"8 16\""),
        ("PERF_SYNC_TYPES", "2", "PERF_SYNC_TYPES: '2' is not valid"),
        ("PERF_IOSIZES", "8k;reboot", "PERF_IOSIZES: '8k;reboot' is not valid"),
        ("PERF_FIO_FORMAT", "xml", "PERF_FIO_FORMAT: 'xml' is not valid; an example: json"),
        ("PERF_NTHREADS", "1\u0663", "PERF_NTHREADS: '1\u0663' is not valid"),  # a digit that no shell counts with
        ("PERF_NTHREAD", "8", "PERF_NTHREAD is not a variable of tests/perf: did you mean PERF_NTHREADS?"),
    ],
)
def test_what_a_variable_can_not_be_is_said_with_what_it_could(name: str, value: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        perf_variables({name: value})
    assert str(refused.value).startswith(said)


def test_threads_are_shared_evenly_among_file_systems_and_examples_of_variables_are_valid() -> None:
    with pytest.raises(UserError, match="8 threads do not divide into 3 for each file system"):
        perf_variables({"PERF_NTHREADS": "9 8", "PERF_NTHREADS_PER_FS": "0 3"})
    for name, variable in VARIABLES.items():
        value = variable.example.replace('"', "").partition(": ")[0]
        value = value if "such" in value or name == "PERF_COLLECT_SCRIPTS" else value.partition(",")[0]
        assert perf_variables({name: value}) == {name: value}


def test_zts_perf_is_the_suite_s_runfile_with_these_variables_and_disks() -> None:
    asked = measuring(Asked(("zts-perf",)), {"PERF_RUNTIME": "5"}, "1G")
    assert isinstance(asked.adapter, Zts)
    assert asked.adapter.files("zts-perf") == ("/usr/share/zfs/runfiles/perf-regression.run",)
    needs = asked.adapter.needs()
    assert needs.given["PERF_RUNTIME"] == "5" and needs.disk_size == 1024**3 and needs.disks == 3
    assert {"perf", "fio"} <= set(needs.programs)
    without = measuring(Asked(("zts-perf",), allow_missing=True), {}, "").adapter
    assert isinstance(without, Zts) and "perf" not in without.needs().programs
    assert measuring(Asked(("zts",)), {"PERF_RUNTIME": "nonsense"}, "").adapter is None


@pytest.mark.parametrize(
    ("size", "environment", "said"),
    [
        ("1", {}, "--disk-size 1: the ZFS Test Suite's pools need 256M at least"),
        ("large", {}, "--disk-size large: write a size"),
        ("", {"NFS_CLIENT": "there"}, "NFS_CLIENT: performance tests over NFS need a second machine"),
        ("", {"DISKS": "sda"}, "DISKS names disks of this machine"),
    ],
)
def test_sizes_and_places_that_can_not_be_are_refused(size: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        measuring(Asked(("zts-perf",)), environment, size)
