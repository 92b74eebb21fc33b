"""Tests of ``storlab.grouping``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storlab.grouping import connected

THINGS = st.integers(0, 9)


@given(st.lists(st.tuples(THINGS, THINGS)))
def test_things_hang_together_exactly_where_a_way_leads_from_one_to_the_other(pairs: list[tuple[int, int]]) -> None:
    found = connected(range(10), pairs)
    for start in range(10):
        reached, ahead = {start}, [start]
        while ahead:
            here = ahead.pop()
            beside = {b for a, b in pairs if a == here} | {a for a, b in pairs if b == here}
            ahead += beside - reached
            reached |= beside
        assert {thing for thing in range(10) if found[thing] == found[start]} == reached
        assert found[start] == min(reached), "by the first of them"
