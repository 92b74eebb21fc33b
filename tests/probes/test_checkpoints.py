"""Checkpoints as databases tell of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from storlab.probes.server.checkpoints import BEGAN, COUNT, NOW, REACHED, Checkpoint, checkpoints


@dataclass(frozen=True)
class Answer:
    t: float
    numbers: dict[str, int] = field(default_factory=dict)


def postgres(*answers: tuple[float, int, int]) -> list[Checkpoint]:
    """Each: time, how many, when the last finished one began."""
    return checkpoints([Answer(t, {COUNT: n, BEGAN: 1000 + at, NOW: int(1000 * (1000 + t))}) for t, n, at in answers])


def innodb(*reached: int) -> list[Checkpoint]:
    return checkpoints([Answer(float(t), {REACHED: at}) for t, at in enumerate(reached)])


def test_one_that_is_spread_out_lasts_from_when_it_is_counted_until_the_control_file_has_it() -> None:
    assert postgres((8, 0, 0), (9, 0, 0), (10, 1, 0), (11, 1, 0), (12, 1, 9), (13, 1, 9)) == [Checkpoint(9, 12)]


def test_one_that_was_forced_began_when_the_control_file_says() -> None:
    assert postgres((2, 0, 0), (9, 0, 0), (10, 1, 6), (11, 1, 6)) == [Checkpoint(6, 10)]


def test_one_that_does_not_end_has_no_end() -> None:
    assert postgres((9, 0, 0), (10, 1, 0), (11, 1, 0)) == [Checkpoint(9, None)]


def test_innodb_s_lasts_for_as_long_as_it_moves() -> None:
    assert innodb(5, 5, 9, 12, 12, 13, 13, 13, 13, 20, 20, 20, 20) == [Checkpoint(1, 5), Checkpoint(8, 9)]
    assert innodb(5, 5, 5) == []
    assert innodb(5, 6) == [Checkpoint(0, None)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)), max_size=20))
def test_whatever_is_answered_they_end_after_they_begin(steps: list[tuple[int, int, int]]) -> None:
    count = began = reached = 0
    of_postgres, of_innodb = list[Answer](), list[Answer]()
    for t, (more, later, further) in enumerate(steps):
        count, began, reached = count + more, began + later, reached + further
        of_postgres.append(Answer(float(t), {COUNT: count, BEGAN: began, NOW: 1000 * t}))
        of_innodb.append(Answer(float(t), {REACHED: reached}))
    for found in (checkpoints(of_postgres), checkpoints(of_innodb)):
        assert all(each.end is None or each.begin < each.end for each in found)
        assert all(0 <= each.begin < len(steps) for each in found)
