"""KTAP: what programs print in it, nested as they like, and what is printed in it of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.suite.ktap import Result, judge_text, judged, ktap_text, read_ktap
from storlab.suite.model import Outcome

NESTED = """\
KTAP version 1
1..2
  KTAP version 1
  1..3
    KTAP version 1
    1..2
    ok 1 first
    not ok 2 second
  not ok 1 deep
  ok 2 fine
  ok 3 later # SKIP no device
not ok 1 suite
ok 2 alone
"""
KSELFTEST = """\
TAP version 13
1..2
# timeout set to 45
# selftests: sync: sync_test
# TAP version 13
# 1..3
# # [RUN]\tExecuting a_test
# ok 1 [RUN]\ttest_alloc_sync_timeline
# not ok 2 [RUN]\ttest_merge # TODO known to fail
# ok 3 wait # SKIP no timer
# # Totals: pass:1 fail:0 xfail:0 xpass:0 skip:1 error:0
ok 1 selftests: sync: sync_test
not ok 2 selftests: size: get_size # TIMEOUT 45 seconds
"""
KUNIT = "[    0.060000] TAP version 14\n[    0.060000] 1..1\n[    0.070000]     # Subtest: example\n" + (
    "[    0.070000]     1..1\n[    0.080000]     ok 1 - example_simple_test\n[    0.090000] ok 1 - example\n"
)


def read(text: str) -> Result:
    found = read_ktap(text.splitlines())
    assert found is not None
    return found


def test_subtests_belong_to_the_next_result_above_them() -> None:
    found = read(NESTED)
    suite, alone = found.subtests
    assert [each.name for each in suite.subtests] == ["deep", "fine", "later"] and alone.subtests == ()
    assert [each.outcome for each in suite.subtests[0].subtests] == [Outcome.PASS, Outcome.FAIL]
    assert suite.subtests[2].outcome is Outcome.SKIP and suite.subtests[2].why == "no device"
    assert list(found.failed) == ["suite.deep.second"] and found.leaves == 5 and found.missing == 0
    assert judged(found, 1) == (Outcome.FAIL, "1 of 5 subtests failed: suite.deep.second")


def test_what_kselftest_puts_behind_a_hash_is_nested() -> None:
    sync, size = read(KSELFTEST).subtests
    assert [each.outcome for each in sync.subtests] == [Outcome.PASS, Outcome.PASS, Outcome.SKIP]
    assert sync.outcome is Outcome.PASS and (size.outcome, size.why) == (Outcome.FAIL, "timeout 45 seconds")


def test_times_of_the_kernel_s_log_are_passed_over() -> None:
    (example,) = read(KUNIT).subtests
    assert example.name == "example" and [each.name for each in example.subtests] == ["example_simple_test"]


@pytest.mark.parametrize(
    ("text", "code", "outcome", "why"),
    [
        ("1..0 # SKIP no such module\n", 4, Outcome.SKIP, "no such module"),
        ("1..0 # SKIP no such module\n", 0, Outcome.SKIP, "no such module"),
        ("1..3\nok 1 a\nok 2 b\n", 0, Outcome.FAIL, "1 planned results are missing"),
        ("1..1\nok 1 a\nBail out! the disk is gone\n", 0, Outcome.FAIL, "Bail out! the disk is gone"),
        ("1..1\nok 1 a\n", 1, Outcome.FAIL, "no subtest failed, and yet its status is 1"),
        ("1..1\nok 1 a\n", 0, Outcome.PASS, ""),
        ("1..1\nok 1 a # SKIP not here\n", 0, Outcome.SKIP, "not here"),
        ("1..1\nnot ok 1 a # XFAIL known\n", 0, Outcome.PASS, ""),
        ("TAP version 13\n", 0, Outcome.FAIL, "there are no results"),
        ("okay\nnothing of it\n", 0, Outcome.PASS, "it printed no line of KTAP"),
        ("", 4, Outcome.SKIP, ""),
        ("", None, Outcome.FAIL, ""),
        ("ok 1 a\n  not ok 1 b\n", 0, Outcome.FAIL, "1 of 2 subtests failed: (no result).b"),
    ],
)
def test_results_and_status_are_judged_together(text: str, code: int | None, outcome: Outcome, why: str) -> None:
    assert judged(read_ktap(text.splitlines()), code) == (outcome, why)


_FILLER = "# some diagnostics\n" * 5


@pytest.mark.parametrize(
    ("text", "code", "outcome", "why"),
    [
        (f"ok 1 a\n{_FILLER}not ok 2 b\n", 0, Outcome.FAIL, "were read, and no plan says how many results there are"),
        (f"{_FILLER}not ok 1 a\n", 0, Outcome.FAIL, "were read, and no plan"),
        (f"ok 1 a # SKIP no device\n{_FILLER}not ok 2 b\n", 0, Outcome.FAIL, "were read, and no plan"),
        (f"  1..1\n  ok 1 a\nok 1 b\n{_FILLER}not ok 2 c\n", 0, Outcome.FAIL, "were read, and no plan"),
        (f"1..2\nok 1 a\n{_FILLER}not ok 2 b\n", 0, Outcome.FAIL, "1 planned results are missing"),
        (f"1..1\nok 1 a\n{_FILLER}", 0, Outcome.PASS, ""),
        (f"1..0 # SKIP no device\n{_FILLER}", 0, Outcome.SKIP, "no device"),
        (f"\xff\xff\nok 1 a\n{_FILLER}not ok 2 b\n", 0, Outcome.FAIL, "were read, and no plan"),
    ],
)
def test_a_failure_may_follow_what_is_read_of_very_much_unless_a_plan_is_fulfilled(
    text: str, code: int, outcome: Outcome, why: str
) -> None:
    read_first = text.encode("latin-1")[:60]
    found = judge_text(read_first.decode(errors="replace"), code, most=60)
    assert found[0] is outcome and why in found[1]


@pytest.mark.parametrize(
    ("text", "code", "outcome", "why"),
    [
        ("ok 1 a\nok", 0, Outcome.PASS, ""),
        ("ok 1 a\nnot ok 2 b", 0, Outcome.FAIL, ""),
        ("1..1\nok 1 a", 0, Outcome.PASS, ""),
        ("ok 1 a\n1..1", 0, Outcome.PASS, ""),
        ("ok 1 a\n", 0, Outcome.PASS, ""),
        ("ok 1 a # SKIP no device", 4, Outcome.SKIP, "no device"),
        ("no KTAP at all", 0, Outcome.PASS, "it printed no line of KTAP"),
        ("", 0, Outcome.PASS, "it printed no line of KTAP"),
    ],
)
def test_a_text_whose_last_line_has_no_end_is_judged_by_all_of_it(
    text: str, code: int, outcome: Outcome, why: str
) -> None:
    found = judge_text(text, code)
    assert found[0] is outcome and why in found[1]


_TREES = st.recursive(
    st.builds(
        Result,
        st.text("abc x", min_size=1).filter(lambda t: t.split() == [t]),
        st.sampled_from([Outcome.PASS, Outcome.FAIL]),
    ),
    lambda inner: st.builds(
        lambda name, subtests: Result(
            name,
            Outcome.FAIL if any(each.outcome is Outcome.FAIL for each in subtests) else Outcome.PASS,
            "",
            tuple(subtests),
            len(subtests),
        ),
        st.sampled_from(["a", "b c"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


@given(st.lists(_TREES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(results: list[Result]) -> None:
    assert list(read("\n".join(ktap_text(results))).subtests) == results


@given(st.text("ok nt12.# \t\nKTAPversi-SKBal!x[]", max_size=120))
def test_any_text_has_an_outcome(text: str) -> None:
    outcome, why = judge_text(text, 0)
    assert isinstance(outcome, Outcome) and "\n" not in why
