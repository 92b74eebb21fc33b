"""Options of other programs: what is listed, how a name and a value are judged, and the page that is written of it."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.options_reference import reference

from storlab.base.allowed import KINDS, Allowed, allowed, programs, tables_of, together

TABLES = [allowed(program, part) for program in programs() for part in tables_of(program)]
NAMES = sorted({name for table in TABLES for name in table.names()})


def test_a_name_that_is_not_listed_is_refused_with_what_to_write_instead() -> None:
    fio = allowed("fio")
    assert fio.problem("size", "4M") is None
    assert fio.problem("siz", "4M") == (
        "\"siz\" is not among fio's options that a study can set; did you mean 'size'? "
        "(all are in docs/reference/options.md)"
    )
    assert "write it into [trial] prepare" in str(fio.problem("exec_prerun", "x"))
    assert fio.problem("output", "x") == '"output" is Storlab\'s own: leave it out'
    assert fio.problem("bs", "many") == '"bs" can\'t be "many" here: it takes numbers'
    assert fio.first_problem([("rw", "read"), ("bs", 4096), ("thread", True), ("x", None)]) is not None


def test_tables_of_several_programs_can_be_one() -> None:
    both = together(allowed("fio", "engine"), allowed("fio"))
    assert both.problem("psync") is None and both.problem("bs", "4k") is None
    assert "fio's engines" in str(both.problem("nothing")) and both.rule_of("nothing") is None


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.whose)
def test_each_option_is_listed_once_and_is_not_storlabs_own_as_well(table: Allowed) -> None:
    names = [*table.names()]
    assert sorted(names) == sorted(set(names))
    assert not {*table.own} & {*names} and not {*table.instead} & {*names}


def decorated(name: str) -> list[str]:
    """Spellings that one program or another takes for the same."""
    before = ("loose_", "loose-", "skip_", "skip-", "enable_", "disable_", "maximum_", "no", "no_", "^", "-", "--", " ")
    return [
        name.upper(), name.capitalize(), name.replace("_", "-"), name.replace("-", "_"), name[:-1], f"{name} ",
        f"{name}=", f"{name}\n", name.replace("_", ""), *(f"{word}{name}" for word in before),
    ]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.whose)
def test_a_name_counts_as_it_is_listed_and_in_no_other_spelling(table: Allowed) -> None:
    exact = {name for name in table.names() if "*" not in name}
    for name in exact:
        for spelling in {*decorated(name)} - exact:
            if not any(re.fullmatch(each.replace("*", "[a-z0-9_]*"), spelling) for each in table.names()):
                assert table.rule_of(spelling) is None, spelling


@given(st.text(max_size=40))
def test_nothing_made_up_is_allowed(name: str) -> None:
    for table in TABLES:
        assert table.rule_of(name) is None or name in NAMES


PATHS = st.builds("".join, st.lists(st.sampled_from(["/", "..", "etc", "dev", ":", ",", "x", "1", "-"]), min_size=1))


@given(PATHS, st.sampled_from(NAMES))
def test_no_value_leads_anywhere_unless_rules_of_its_own_judge_it(path: str, name: str) -> None:
    for table in TABLES:
        rule = table.rule_of(name)
        free = rule is not None and rule.pattern in (KINDS["any"][0], KINDS["text"][0])
        leads = ".." in path.split("/") or re.search(r"(^|[:,])/[^/\d:,-]", path) is not None
        if rule is not None and not free and leads:
            assert table.problem(name, path) is not None, (table.whose, path)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.whose)
def test_no_value_takes_long_to_be_judged(table: Allowed) -> None:
    for piece in ("0xff,", "--5", "1", "1k1", "a/1", '"', "%o", "=a", "a,", "a:b"):
        began = time.thread_time()
        for rule in table.rules:
            re.fullmatch(rule.pattern, f"{piece * 800}!", re.ASCII)
        assert time.thread_time() - began < 1, piece


def test_the_page_of_options_is_up_to_date() -> None:
    page = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
    assert page.read_text() == reference(), "again: python -m tools.options_reference > docs/reference/options.md"
