"""Which tests are run: names, tags, shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import UserError
from storlab.suite.model import Absent, Group, Script, Suite
from storlab.suite.selection import Failures, Selection, matches, parse_share, parse_tags, select, shared
from suite.samples import RUNFILE, suite_of


def chosen(selection: Selection) -> list[str]:
    suite = select(suite_of(RUNFILE), selection)
    return [test.path.removeprefix("/suite/tests/") for group in suite.groups for test in group.tests]


def test_a_pattern_is_the_end_of_a_path_from_some_component_on() -> None:
    assert chosen(Selection(tests=("create", "acl/*"))) == ["acl/allow", "pool/create"]
    assert chosen(Selection(tests=("pool/*",), excluded=("*me",))) == ["pool/create", "pool/destroy"]
    assert matches("/a/b/c", "/a/b/c") and not matches("/a/bc", "c")


@pytest.mark.parametrize("selection", [Selection(tests=("nothing",)), Selection(excluded=("nothing",))])
def test_a_pattern_that_is_no_test_is_refused(selection: Selection) -> None:
    with pytest.raises(UserError, match="no test of ours is called 'nothing'"):
        chosen(selection)


def test_nothing_left_is_refused_and_so_are_tags_that_nobody_has() -> None:
    with pytest.raises(UserError, match="no test of ours is left"):
        chosen(Selection(excluded=("*",)))
    with pytest.raises(UserError, match="no group of ours has the tags 'fast'; there are all, pool"):
        chosen(Selection(tags="fast"))


@pytest.mark.parametrize(
    ("tags", "count"),
    [("pool", 3), ("not pool", 2), ("all and not (pool or none)", 2), ("none, pool", 3), ("not not pool", 3)],
)
def test_tags_are_an_expression(tags: str, count: int) -> None:
    assert len(chosen(Selection(tags=tags))) == count


ABSENT = (
    Absent("ours.run:3", "[tests/acl] is left out", 2, ("/suite/tests/acl/allow", "/suite/tests/acl/deny"), ("all",)),
    Absent("command line", "nobody knows what it holds"),
)


@pytest.mark.parametrize(
    ("selection", "tests"),
    [
        (Selection(), [2, 1]),
        (Selection(tags="all"), [2, 1]),
        (Selection(tags="pool and not all"), [1]),
        (Selection(tests=("acl/*",), excluded=("allow",)), [1, 1]),
        (Selection(tests=("pool/*",)), [1]),
        (Selection(keys=frozenset({("tests/pool", "/suite/tests/pool/create")})), [1]),
        (
            Selection(
                failed=Failures(
                    frozenset({("tests/pool", "/suite/tests/pool/create"), ("tests/acl", "/suite/tests/acl/deny")})
                )
            ),
            [1, 1],
        ),
    ],
)
def test_what_is_absent_counts_only_as_far_as_it_was_asked_for(selection: Selection, tests: list[int]) -> None:
    pool = Group("tests/pool", (Script("/suite/tests/pool/create", "root"),), tags=("pool",))
    both = Group(
        "tests/all", (Script("/suite/tests/acl/allow", "root"), Script("/suite/tests/acl/x", "root")), tags=("all",)
    )
    assert [each.tests for each in select(Suite("ours", (pool, both), ABSENT), selection).absent] == tests


@pytest.mark.parametrize("tags", ["and", "a and", "(a", "a)", "a b", "not", "()", "(" * 990])
def test_an_expression_that_is_none_is_refused(tags: str) -> None:
    with pytest.raises(UserError, match="--tags"):
        parse_tags(tags)


@given(st.recursive(st.sampled_from(["a", "b", "c"]), lambda inner: st.tuples(inner, inner), max_leaves=8), st.data())
def test_an_expression_means_what_python_means_by_it(tree: object, data: st.DataObject) -> None:
    def text(node: object) -> str:
        if isinstance(node, tuple):
            operator = data.draw(st.sampled_from(["and", "or"]))
            return f"({text(node[0])} {operator} {data.draw(st.sampled_from(['', 'not ']))}{text(node[1])})"
        return str(node)

    written = text(tree)
    has = data.draw(st.sets(st.sampled_from("abc")))
    assert parse_tags(written)(has) == eval(written, {}, {name: name in has for name in "abc"})


_GROUPS = st.lists(st.integers(1, 5), max_size=12).map(
    lambda sizes: [
        Group(f"g{number}", tuple(Script(f"/g{number}/{test}", "root") for test in range(size)))
        for number, size in enumerate(sizes)
    ]
)


@given(_GROUPS, st.integers(1, 5))
def test_all_shares_together_are_all_groups_once_each_and_about_equally_long(groups: list[Group], parts: int) -> None:
    shares = [shared(groups, (part, parts), {}) for part in range(1, parts + 1)]
    together = [group.name for share in shares for group in share]
    assert sorted(together) == sorted(group.name for group in groups)
    loads = [sum(len(group.tests) for group in share) for share in shares]
    longest = max((len(group.tests) for group in groups), default=0)
    assert max(loads) - min(loads) <= longest
    for share in shares:
        assert [group for group in groups if group in share] == share


def test_recorded_times_make_shares_even() -> None:
    groups = [Group(name, (Script(f"/{name}", "root"),)) for name in "abc"]
    times = {("a", "/a"): 10.0, ("b", "/b"): 1.0, ("c", "/c"): 1.0}
    assert [g.name for g in shared(groups, (1, 2), times)] == ["a"]
    assert [g.name for g in shared(groups, (2, 2), times)] == ["b", "c"]


def test_tests_can_be_named_one_by_one() -> None:
    suite = suite_of(RUNFILE)
    pool = suite.groups[-1]
    kept = select(suite, Selection(keys=frozenset({(pool.name, pool.tests[1].path)})))
    assert kept.groups == (replace(pool, tests=pool.tests[1:2]),)


def failed(*scripts: tuple[str, str], by_identifier: bool = False) -> Selection:
    return Selection(failed=Failures(frozenset(scripts), by_identifier))


def test_what_failed_is_run_again_and_all_of_a_group_whose_set_up_or_clean_up_failed() -> None:
    assert chosen(failed(("tests/pool", "/suite/tests/pool/rename"))) == ["pool/rename"]
    for script in ("setup", "cleanup"):
        everything = ["pool/create", "pool/destroy", "pool/rename"]
        assert chosen(failed(("tests/pool", f"/suite/tests/pool/{script}"))) == everything


def test_groups_are_known_by_their_identifiers_where_their_names_are_not() -> None:
    assert chosen(failed(("Linux", "/suite/tests/acl/allow"), by_identifier=True)) == ["acl/allow"]
    for wrong in (("", "/suite/tests/acl/allow"), ("tests/acl:Linux", "/suite/tests/acl/allow")):
        with pytest.raises(UserError, match="no test of ours is left"):
            chosen(failed(wrong, by_identifier=True))


def test_failures_are_found_wherever_the_suite_is_installed() -> None:
    path = "/home/me/zfs/tests/zfs-tests/tests/functional/acl/posix/one"
    here = Group("posix", (Script(path, "root"), Script("/own/acl/posix/one", "root")))
    kept = select(Suite("ours", (here,)), failed(("posix", "acl/posix/one")))
    assert [test.path for group in kept.groups for test in group.tests] == [path], "one's own are known by whole paths"


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "-1/2", "1/2/3", "x/y"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="it must be K/N"):
        parse_share(text)
