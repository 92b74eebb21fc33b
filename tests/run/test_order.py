"""Orders of rounds: drawn by lot, cells that are compared next to each other, and exchanging two of them changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations, groupby, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from storlab.run.planning.order import PlannedTrial, round_order

Groups = Mapping[int, int]
Cells = tuple[list[int], dict[int, int], dict[int, int]]

CELLS = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)
ROUNDS = st.integers(1, 10_000)


@st.composite
def groupings(draw: st.DrawFn) -> Cells:
    """Cells, their groups, and blocks of some of them."""
    cells = list(range(1, draw(CELLS) + 1))
    groups = {cell: draw(st.integers(1, 3)) for cell in cells}
    blocks = {cell: block for cell in cells if (block := draw(st.integers(0, 3)))}
    return cells, groups, blocks


def together(order: Iterable[object]) -> bool:
    """Whether equal ones follow each other."""
    runs = [key for key, _ in groupby(order)]
    return len(runs) == len(set(runs))


def ordered(cells: int, groups: Groups | None, seed: int, blocks: Mapping[int, int] | None = None) -> tuple[int, ...]:
    return tuple(planned.cell for planned in round_order(range(1, cells + 1), 1, seed, blocks, groups))


@given(groupings(), SEEDS, ROUNDS)
def test_every_cell_is_there_once_with_a_number_that_no_other_round_has(given_: Cells, seed: int, number: int) -> None:
    cells, groups, blocks = given_
    for grouping in (groups, None):
        order = round_order(cells, number, seed, blocks, grouping)
        assert sorted(planned.cell for planned in order) == cells
        first = (number - 1) * len(cells) + 1
        assert [planned.number for planned in order] == list(range(first, first + len(cells)))
        assert {planned.block for planned in order} <= {*blocks.values(), None}
        assert len({planned.seed for planned in order}) == 1


@given(groupings(), SEEDS, ROUNDS)
def test_the_same_seed_gives_the_same_order(given_: Cells, seed: int, number: int) -> None:
    cells, groups, blocks = given_
    assert round_order(cells, number, seed, blocks, groups) == round_order(cells, number, seed, blocks, groups)


def test_orders_are_those_of_every_version_before() -> None:
    """A run that is resumed goes on in the order that it had: these never change."""
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7)) == [6, 3, 2, 4, 5, 1]
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {1: 1, 2: 1})) == [6, 3, 2, 1, 4, 5]
    groups = {1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 2}
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {}, groups)) == [2, 6, 4, 1, 3, 5]
    assert _cells(round_order([1, 2, 3, 4, 5, 6], 3, 7, {1: 1, 3: 1}, groups)) == [4, 2, 6, 1, 3, 5]
    assert round_order([1, 2], 3, 7, {}, {1: 1, 2: 1})[0].seed == 1107647929


def _cells(order: Iterable[PlannedTrial]) -> list[int]:
    return [planned.cell for planned in order]


@given(groupings(), SEEDS, ROUNDS)
def test_blocks_follow_each_other_and_groups_within_them(given_: Cells, seed: int, number: int) -> None:
    cells, groups, blocks = given_
    order = [planned.cell for planned in round_order(cells, number, seed, blocks, groups)]
    assert together(blocks.get(cell, -cell) for cell in order)
    assert together((blocks.get(cell, -cell), groups[cell]) for cell in order)
    alone = [planned.cell for planned in round_order(cells, number, seed, {}, groups)]
    assert together(groups[cell] for cell in alone)


def test_groups_that_no_block_divides_are_together_though_there_are_blocks() -> None:
    groups = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2}
    for seed in range(50):
        assert together(groups[cell] for cell in ordered(6, groups, seed, {1: 1, 2: 1, 4: 2, 5: 2}))


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (3, 2), (3, 1, 1)])
def test_every_order_that_keeps_groups_together_is_as_likely_as_any_other(sizes: tuple[int, ...]) -> None:
    """So exchanging two cells of a group changes nothing, whatever the others are and do."""
    groups = dict(enumerate((group for group, size in enumerate(sizes) for _ in range(size)), start=1))
    possible = [order for order in permutations(groups) if together(groups[cell] for cell in order)]
    found = Counter(ordered(len(groups), groups, seed) for seed in range(60 * len(possible)))
    assert found.keys() == set(possible)
    assert stats.chisquare([found[order] for order in possible]).pvalue > 1e-4


def test_exchanging_two_cells_that_are_compared_exchanges_them_alone() -> None:
    """The law of orders, counted: as often with the two exchanged, the rest where it was."""
    groups = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
    found = Counter(ordered(5, groups, seed) for seed in range(4000))
    for a, b in combinations(groups, 2):
        swap = {a: b, b: a}
        exchanged = [tuple(swap.get(cell, cell) for cell in order) for order in found]
        possible = all(order in found for order in exchanged)
        assert possible == (groups[a] == groups[b])


@pytest.mark.parametrize("blocks", [{}, {1: 1, 2: 1, 3: 1}, {1: 1, 3: 1, 2: 2, 4: 2}, {1: 1, 2: 1, 3: 1, 4: 2}])
def test_of_two_cells_that_are_compared_each_goes_first_half_of_the_time(blocks: dict[int, int]) -> None:
    groups = {1: 1, 2: 1, 3: 2, 4: 2}
    orders = [ordered(4, groups, seed, blocks) for seed in range(2000)]
    for a, b in combinations(range(1, 5), 2):
        first = sum(order.index(a) < order.index(b) for order in orders)
        assert stats.binomtest(first, len(orders)).pvalue > 1e-4, (a, b)
