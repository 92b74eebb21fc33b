"""What connections did since the start, followed line by line."""

from __future__ import annotations

from storlab.tcp.agent_output import decode
from storlab.tcp.follow import Follower

from .lines import closed, connection, printed, sample


def followed(*lines: dict[str, object]) -> Follower:
    seen = Follower()
    for line in printed(*lines):
        seen.add(decode(line))
    return seen


def test_what_was_there_at_the_start_begins_at_0() -> None:
    seen = followed(sample(1, connection(bytes_sent=100)), sample(3, connection(bytes_sent=700)))
    (one,) = seen.connections()
    assert (one.totals.bytes_sent, seen.totals().bytes_sent, seen.elapsed) == (600, 600, 2.0)
    assert (seen.opened, seen.ended) == (0, 0)


def test_what_came_later_counts_whole_and_the_busiest_comes_first() -> None:
    seen = followed(sample(1), sample(2, connection(1, bytes_sent=5), connection(2, bytes_received=50)))
    assert [each.connection.cookie for each in seen.connections()] == [2, 1]
    assert (seen.totals().bytes_moved, seen.opened) == (55, 2)


def test_what_has_closed_stays_in_the_sums() -> None:
    seen = followed(
        sample(1, connection(1, bytes_sent=100, busy_time=7)),
        closed(1.5, connection(1, bytes_sent=400)),
        closed(1.6, connection(2, bytes_sent=30)),
        sample(2, gone=[1]),
    )
    assert seen.connections() == []
    assert (seen.totals().bytes_sent, seen.opened, seen.ended) == (330, 1, 2)


def test_without_its_last_counts_what_was_last_seen_of_it_counts() -> None:
    seen = followed(
        sample(1, connection(1, bytes_sent=100)), sample(2, connection(1, bytes_sent=200)), sample(3, gone=[1])
    )
    assert (seen.totals().bytes_sent, seen.ended) == (100, 1)


def test_what_closed_while_the_first_sample_was_taken_did_nothing_since() -> None:
    row = connection(1, bytes_sent=100)
    for first in (sample(1), sample(1, row)):
        seen = followed(closed(1.01, row), first, sample(2, gone=[1]))
        assert (seen.totals().bytes_sent, seen.opened, seen.ended, seen.connections()) == (0, 0, 0, [])
