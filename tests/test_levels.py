"""Tests of ``storlab.levels``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.amounts import size_text
from storlab.levels import Numbers, is_sweep, numbers_of


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["1", "8", "32"], Numbers("", (1, 8, 32))),
        (["0.5", "2"], Numbers("", (0.5, 2))),
        (["512", "4k", "1M"], Numbers("B", (512, 4096, 2**20))),
        (["64k", "1m"], Numbers("B", (65536, 2**20))),
        (["0ms", "1ms", "10ms"], Numbers("s", (0, 0.001, 0.01))),
        (["0", "30s", "1m"], Numbers("s", (0, 30, 60))),
    ],
)
def test_numbers_sizes_and_durations_are_read_as_such(labels: list[str], numbers: Numbers) -> None:
    assert numbers_of(labels) == numbers


@pytest.mark.parametrize(
    "labels",
    [[], ["ext4", "xfs"], ["1", "none"], ["-1", "2"], ["4k", "1ms"], ["5", "1ms"], ["true", "false"], ["1..2k"]],
)
def test_names_are_not_numbers(labels: list[str]) -> None:
    assert numbers_of(labels) is None


def test_a_sweep_has_three_or_more_different_numbers() -> None:
    assert is_sweep(["1", "2", "4"])
    assert not is_sweep(["1500", "9000"])  # one pair: a question
    assert not is_sweep(["1", "1.0", "2"])


@given(st.lists(st.integers(1, 2**50), min_size=1))
def test_what_a_size_is_shown_as_is_read_as_that_size(sizes: list[int]) -> None:
    found = numbers_of(map(size_text, sizes))
    assert found is not None and found.values == tuple(map(float, sizes))


@given(st.lists(st.text(max_size=80), max_size=5))
def test_no_text_breaks_it(labels: list[str]) -> None:
    found = numbers_of(labels)
    assert found is None or len(found.values) == len(labels)
