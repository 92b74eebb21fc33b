"""TCP segments for each request, each counted where it was sent."""

from __future__ import annotations

import pytest

from storlab.measurements import Measurements, metric_frame
from storlab.metrics import Value
from storlab.records.derived.segments import segments_per_request


def seen(**numbers: float) -> Measurements:
    values = {name.replace("_", "."): number for name, number in numbers.items()}
    return Measurements(metrics=metric_frame(Value(name, number, "1") for name, number in values.items()))


CLIENT = seen(requests=10, segments_sent=12, bytes_sent=480, bytes_received=1_310_720, segments_received=25)
STORE = seen(segments_sent=910, bytes_sent=1_320_720, bytes_retransmitted=10_000, bytes_received=480)


def test_both_ends_have_what_they_have_sent_added_up() -> None:
    (found,) = segments_per_request([CLIENT], [STORE])
    assert (found.metric, found.value) == ("segments.per-request", 92.2)


def test_of_several_clients_all_are_added_up() -> None:
    both = seen(segments_sent=1820, bytes_sent=2 * 1_310_720, bytes_received=960)
    (found,) = segments_per_request([CLIENT, CLIENT], [both])
    assert found.value == 92.2


@pytest.mark.parametrize(
    "below",
    [
        [],
        [seen(segments_sent=910, bytes_sent=1_310_720, bytes_received=96_000)],
        [seen(segments_sent=1820, bytes_sent=2_621_440, bytes_received=480)],
    ],
    ids=["not watched", "serves others as well", "is served itself"],
)
def test_where_the_other_end_is_not_known_there_is_no_number(below: list[Measurements]) -> None:
    assert segments_per_request([CLIENT], below) == []


def test_nothing_is_divided_by_no_requests() -> None:
    assert segments_per_request([seen(segments_sent=1, bytes_sent=480, bytes_received=1_310_720)], [STORE]) == []
