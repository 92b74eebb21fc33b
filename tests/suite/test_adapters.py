"""KTAP, and ``check`` of xfstests and blktests: what programs print in these formats, and how they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import StudyError, UserError
from storlab.suites.adapters.check import Check, CheckOptions
from storlab.suites.check_text import groups_in, read_check, read_excludes, read_group_list
from storlab.suites.groups import Installed
from storlab.suites.ktap import Result, judge_text, judged, ktap_text, read_ktap
from storlab.suites.model import Outcome
from storlab.suites.places.kinds import OWN_TESTS
from storlab.suites.run.own_files import choose, read_suite_file
from storlab.suites.run.plan import Asked, in_order
from storlab.suites.suite_file import CheckTable
from study.program import call
from suite.samples import GOLDEN, judgements, sayings

NESTED, KSELFTEST, KUNIT = ((GOLDEN / f"{name}.ktap").read_text() for name in ("nested", "kselftest", "kunit"))


def read_text(text: str) -> Result:
    found = read_ktap(text.splitlines())
    assert found is not None
    return found


def test_subtests_belong_to_the_next_result_above_them_and_those_of_kselftest_stand_behind_a_hash() -> None:
    found = read_text(NESTED)
    suite, alone = found.subtests
    assert [each.name for each in suite.subtests] == ["deep", "fine", "later"] and alone.subtests == ()
    assert [each.outcome for each in suite.subtests[0].subtests] == [Outcome.PASS, Outcome.FAIL]
    assert suite.subtests[2].outcome is Outcome.SKIP and suite.subtests[2].why == "no device"
    assert list(found.failed) == ["suite.deep.second"] and found.leaves == 5 and found.missing == 0
    assert judged(found, 1) == (Outcome.FAIL, "1 of 5 subtests failed: suite.deep.second")
    sync, size = read_text(KSELFTEST).subtests
    assert [each.outcome for each in sync.subtests] == [Outcome.PASS, Outcome.PASS, Outcome.SKIP]
    assert sync.outcome is Outcome.PASS and (size.outcome, size.why) == (Outcome.FAIL, "timeout 45 seconds")
    (example,) = read_text(KUNIT).subtests
    assert example.name == "example" and [each.name for each in example.subtests] == ["example_simple_test"]


FAIL, PASS, SKIP = Outcome.FAIL, Outcome.PASS, Outcome.SKIP


@pytest.mark.parametrize(("text", "code", "outcome", "why"), judgements("said-in-ktap.txt"))
def test_results_and_status_are_judged_together(text: str, code: int | None, outcome: Outcome, why: str) -> None:
    assert judged(read_ktap(text.splitlines()), code) == (outcome, why)


_FILLER = "# some diagnostics\n" * 5
_NO_PLAN = "were read, and no plan"
OF_MUCH = {
    f"ok 1 a\n{_FILLER}not ok 2 b\n": (FAIL, f"{_NO_PLAN} says how many results there are"),
    f"{_FILLER}not ok 1 a\n": (FAIL, _NO_PLAN),
    f"ok 1 a # SKIP no device\n{_FILLER}not ok 2 b\n": (FAIL, _NO_PLAN),
    f"  1..1\n  ok 1 a\nok 1 b\n{_FILLER}not ok 2 c\n": (FAIL, _NO_PLAN),
    f"1..2\nok 1 a\n{_FILLER}not ok 2 b\n": (FAIL, "1 planned results are missing"),
    f"1..1\nok 1 a\n{_FILLER}": (PASS, ""),
    f"1..0 # SKIP no device\n{_FILLER}": (SKIP, "no device"),
    f"\xff\xff\nok 1 a\n{_FILLER}not ok 2 b\n": (FAIL, _NO_PLAN),
}
CUT = {
    **dict.fromkeys(("ok 1 a\nok", "1..1\nok 1 a", "ok 1 a\n1..1", "ok 1 a\n"), (PASS, "")),
    "ok 1 a\nnot ok 2 b": (FAIL, ""),
    **dict.fromkeys(("no KTAP at all", ""), (PASS, "it printed no line of KTAP")),
}


def test_a_failure_may_follow_what_is_read_of_very_much_and_a_last_line_has_no_end() -> None:
    for text, (outcome, why) in OF_MUCH.items():
        found = judge_text(text.encode("latin-1")[:60].decode(errors="replace"), 0, most=60)
        assert found[0] is outcome and why in found[1], text
    for text, (outcome, why) in CUT.items():
        found = judge_text(text, 0)
        assert found[0] is outcome and why in found[1], text
    assert judge_text("ok 1 a # SKIP no device", 4) == (SKIP, "no device")


def of_subtests(name: str, subtests: list[Result]) -> Result:
    came = FAIL if any(each.outcome is FAIL for each in subtests) else PASS
    return Result(name, came, "", tuple(subtests), len(subtests))


_WORDS = st.text("abc x", min_size=1).filter(lambda text: text.split() == [text])
_NAMES = st.sampled_from(["a", "b c"])
_TREES = st.recursive(
    st.builds(Result, _WORDS, st.sampled_from([PASS, FAIL])),
    lambda inner: st.builds(of_subtests, _NAMES, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=12,
)


@given(st.lists(_TREES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(results: list[Result]) -> None:
    assert list(read_text("\n".join(ktap_text(results))).subtests) == results


@given(st.text("ok nt12.# \t\nKTAPversi-SKBal!x[]", max_size=120))
def test_any_text_has_an_outcome(text: str) -> None:
    outcome, why = judge_text(text, 0)
    assert isinstance(outcome, Outcome) and "\n" not in why


HEAD = "FSTYP         -- ext4\nPLATFORM      -- Linux/x86_64 vm\nMKFS_OPTIONS  -- /dev/vdb\n\n"
QUICK = "#! /bin/bash\n. ./common/preamble\n_begin_fstest auto quick\n"
SLOW = "#!/bin/bash\n_begin_fstest auto stress\n"


@pytest.mark.parametrize(("text", "code", "outcome", "why"), judgements("said-by-check.txt"))
def test_a_test_is_judged_by_what_check_says_of_it(text: str, code: int, outcome: Outcome, why: str) -> None:
    assert read_check((HEAD + text).splitlines(), "generic/001", code) == (outcome, why)
    assert read_check((HEAD + text).splitlines(), "generic/002", 0) == (Outcome.FAIL, "check printed no result of it")


@given(st.text("generic/001 [faildpsenotru]-.:\n    R", max_size=100), st.sampled_from([0, 1, None]))
def test_any_output_has_an_outcome_that_is_no_pass_where_the_status_says_so(text: str, code: int | None) -> None:
    outcome, why = read_check(text.splitlines(), "generic/001", code)
    assert (code == 0 or outcome is Outcome.FAIL) and "\n" not in why


def test_groups_are_read_from_lists_and_from_tests() -> None:
    assert read_group_list("# QA groups\n\n001 auto quick # x\n../bad auto\n") == {"001": ("auto", "quick")}
    assert groups_in(QUICK) == ("auto", "quick") and groups_in("DESCRIPTION=x\nQUICK=1\n") == ("quick",)
    assert groups_in("DESCRIPTION=x\n") == () and groups_in("#!/bin/sh\n") is None
    assert read_excludes("generic/001 # flaky\n\n# all\nxfs/002\n") == ["generic/001", "xfs/002"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {"a/001": QUICK, "a/002": SLOW, "b/001": QUICK, "../check": "#!/bin/bash\n"}.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "tests" / "a" / "001.out").write_text("QA output created by 001\n")
    (tmp_path / "tests" / "a" / "known").write_text("001\n")
    (tmp_path / "skip").write_text("b/001 # later\n")
    return tmp_path


def wanted(**options: Any) -> CheckTable:
    return CheckTable.model_construct(**options)


def names(checkout: Path, chosen: CheckTable) -> list[str]:
    return [test for test, _ in choose(checkout, chosen)]


def test_options_choose_tests_as_those_of_check(checkout: Path) -> None:
    assert names(checkout, wanted()) == ["a/001", "a/002", "b/001"]
    assert names(checkout, wanted(groups=("quick",))) == ["a/001", "b/001"]
    assert names(checkout, wanted(groups=("a",), exclude_groups=("stress",))) == ["a/001"]
    assert names(checkout, wanted(tests=("b/001",), groups=("stress",))) == ["a/002", "b/001"]
    assert names(checkout, wanted(exclude=("a/001",), exclude_files=(checkout / "skip",))) == ["a/002"]
    assert names(checkout, wanted(exclude_lists=("known",))) == ["a/002", "b/001"]
    for chosen in (wanted(tests=("c/001",)), wanted(groups=("none",)), wanted(exclude_files=(checkout / "gone",))):
        with pytest.raises(UserError):
            choose(checkout, chosen)
    with pytest.raises(UserError, match="no test is left to run"):
        choose(checkout, wanted(groups=("stress",), exclude=("a/002",)))


def test_each_test_is_one_call_of_check(checkout: Path) -> None:
    adapter = Check("/x", CheckOptions(tuple(choose(checkout, wanted())), "my section"))
    a, b = adapter.groups("x", (), Installed()).groups
    assert (a.name, len(a.tests), b.tags) == ("a", 2, ("auto", "quick"))
    launch = adapter.launch(a.tests[0], {"TEST_DEV": "/dev/vda", "DISKS": "vda vdb vdc"})
    assert launch.argv[2] == "cd /x && ./check -s 'my section' a/001" and launch.env["TEST_DEV"] == "/dev/vda"
    kept = {"a/001.out.bad", "my section/a/001.full", "nodev/a/001.out.bad", "vdc/a/001.dmesg"}
    assert {f"/x/results/{each}" for each in kept} <= set(launch.keep)


def test_what_is_no_checkout_is_refused(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = call("suite", "check", str(tmp_path / "empty"))
    assert ran.status == 2 and "has no program `check`" in ran.message
    assert "both say how often" in call("suite", "check", str(checkout), "-i", "2", "-I", "2").message
    assert "there is no test c/1" in call("suite", "check", str(checkout), "c/1").message


def test_a_suite_file_says_the_same_as_the_options(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "known").write_text("generic/003\n")
    text = (
        "adapter = 'check'\nfolder = '.'\nenvironment = { MKFS_OPTIONS = '-m crc=1' }\n"
        "[check]\ntests = ['a/001']\nexclude_files = ['known']\nfstyp = 'xfs'\ntimeout = '2m'\nsection = 's'\n"
        "[guests]\ndisk_size = '1G'\nprograms = ['xfs_io']\n"
    )
    suite = read_suite_file(text, str(tmp_path / "x.toml"))
    (group,) = suite.groups("x", (), Installed()).groups
    assert [test.path for test in group.tests] == [f"{OWN_TESTS}/tests/a/001"] and group.timeout == 120
    needs, launch = suite.needs(), suite.launch(group.tests[0], {"DISKS": "vda vdb vdc"})
    assert "mkfs.xfs" in needs.programs and "xfs_io" in needs.programs and needs.disk_size == 1024**3
    assert "./check -s s a/001" in launch.argv[2] and launch.env["MKFS_OPTIONS"] == "-m crc=1"


@pytest.mark.parametrize(("says", "text"), sayings("mistakes-in-suite-files.txt"))
def test_what_is_wrong_with_a_suite_file_is_said_with_its_line_and_key(checkout: Path, text: str, says: str) -> None:
    with pytest.raises(StudyError) as refused:
        read_suite_file(text.replace("{}", "."), str(checkout / "x.toml"))
    assert str(refused.value).removeprefix(f"{checkout}/").startswith(says)


def test_all_of_it_is_run_so_many_times(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Asked] = []

    async def run_suite(each: Asked, *_: object) -> None:
        asked.append(each)
        raise UserError("that is enough")

    monkeypatch.setattr("storlab.suites.run.suite_run.run_suite", run_suite)
    for options, tests in ([], 3), (["-i", "4"], 12), (["-I", "4"], 3):  # with -I, iterations come one by one
        call("suite", "check", str(checkout), *options, "--out", str(checkout / "out"))
        adapter = asked[-1].adapter
        assert adapter is not None
        suite = in_order(adapter.groups("x", (), Installed()), asked[-1])
        assert suite.size == tests and len({group.name for group in suite.groups}) == len(suite.groups)
    assert asked[-1].until_failure and asked[-1].iterations == 4
