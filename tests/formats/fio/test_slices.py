"""fio's log of single operations, cut at the turns in which it worked."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from storlab.formats.fio.slices import Cut, cut

Operation = tuple[float, float, int]  # ends at s, took s, direction


def of(operations: list[Operation], turns: list[tuple[float, float]]) -> Cut:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "operations_clat.1.log"
        lines = [f"{int(end * 1000)}, {round(took * 1e9)}, {way}, 4096, 0\n" for end, took, way in sorted(operations)]
        path.write_text("".join(lines))
        return cut(path, turns)


TURNS = [(10.0, 10.25), (10.75, 11.0)]


def test_what_began_and_ended_within_a_turn_is_counted_in_it() -> None:
    found = of([(10.1, 0.01, 0), (10.2, 0.02, 1), (10.8, 0.001, 1)], TURNS)
    assert found.ios.tolist() == [[1, 1, 0], [0, 1, 0]]
    assert found.bytes.tolist() == [[4096, 4096, 0], [0, 4096, 0]]
    assert (found.straddling, found.outside, found.lines) == (0, 0, 3)
    assert found.latency(0).mean == 0.01e9
    assert (found.latency(1).minimum, found.latency(1).maximum, found.latency(1).n) == (1_000_000, 20_000_000, 2)


def test_what_was_in_flight_when_it_was_held_is_left_out() -> None:
    found = of([(10.751, 0.51, 1), (10.752, 0.0005, 1)], TURNS)
    assert found.ios.tolist() == [[0, 0, 0], [0, 1, 0]]
    assert found.straddling == 1
    assert found.latency(1).maximum == 500_000


def test_what_comes_before_the_first_turn_and_after_the_last_is_not_measured_and_no_fault() -> None:
    found = of([(9.0, 0.001, 0), (11.5, 0.001, 0)], TURNS)
    assert (int(found.ios.sum()), found.outside, found.lines) == (0, 0, 2)


def test_what_is_completed_while_it_should_stand_still_is_told() -> None:
    assert of([(10.5, 0.001, 0)], TURNS).outside == 1


def test_times_of_a_machine_that_has_run_for_years_are_read() -> None:
    years = 5 * 365 * 86_400.0
    found = of([(years + 0.1, 0.001, 0)], [(years, years + 0.25)])
    assert found.ios.tolist() == [[1, 0, 0]]


@given(
    st.lists(st.tuples(st.floats(5.0, 15.0), st.floats(1e-6, 3.0), st.integers(0, 2)), max_size=60),
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=12),
)
def test_every_operation_is_counted_once_or_left_out_for_a_reason(
    operations: list[Operation], steps: list[float]
) -> None:
    edges = [6.0]
    for step in steps:
        edges.append(edges[-1] + step)
    turns = list(zip(edges[0::2], edges[1::2], strict=False))
    found = of(operations, turns)
    counted = int(found.ios.sum())
    assert found.lines == len(operations)
    assert counted + found.straddling + found.outside <= len(operations)
    assert counted == int(found.counts.sum())
    assert all(value >= 0 for value in (found.straddling, found.outside))
