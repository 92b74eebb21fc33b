"""Tests of `make check`, `make test` and `make fuzz`: each is in the tier that it says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiers.fuzzing import LONGEST, SYSTEM, enlarge, is_fuzz, is_system, longest_first


@pytest.mark.parametrize("own", [None, 7])
def test_a_larger_budget_means_more_examples_whatever_a_test_says(own: int | None) -> None:
    drawn: list[int] = []

    @given(st.integers())
    def fuzzed(number: int) -> None:
        drawn.append(number)

    test = settings(max_examples=own)(fuzzed) if own else fuzzed
    enlarge(test, 3)
    test()
    assert len(drawn) == 3 * (own or settings().max_examples)


def test_every_place_of_system_tests_is_there() -> None:
    tests = Path(__file__).parent
    assert [place for place in SYSTEM if not (tests / place).exists()] == []


def test_every_place_of_long_tests_is_there() -> None:
    tests = Path(__file__).parent
    assert [place for place in LONGEST if not any(tests.glob(f"{place.rstrip('/')}*"))] == []


def test_what_takes_longest_begins_first_and_files_stay_whole() -> None:
    def item(name: str, *marks: str) -> pytest.Item:
        made = SimpleNamespace(nodeid=f"tests/{name}", get_closest_marker=lambda mark: mark if mark in marks else None)
        return cast("pytest.Item", made)

    unit, longest, system = item("test_a.py::one"), item(f"{LONGEST[0]}::one"), item("cli/test_b.py::one")
    half, slow = item("test_c.py::one"), item("test_c.py::two", "slow")
    items = [unit, system, half, slow, longest]
    longest_first(items)
    assert items == [longest, half, slow, system, unit]


@pytest.mark.slow
def test_a_marked_test_is_none_of_make_check(request: pytest.FixtureRequest) -> None:
    assert is_system(request.node)


@given(st.none())
def test_that_makes_up_its_input_is_of_make_fuzz_and_of_make_check(request: pytest.FixtureRequest, _: None) -> None:
    assert is_fuzz(request.node)
    assert not is_system(request.node)
