"""What the agent prints of TCP: followed, differences over the measured phase, distributions of ACKs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.probes.tcp.metrics import METRICS, ack_histograms, ack_values, values
from storlab.probes.tcp.output import LINES, read_output
from storlab.probes.tcp.totals import Acks, Follower, Totals, Watched, within

from .lines import closed, connection, printed, sample

BEFORE = connection(bytes_received=1000, segs_out=10, data_segs_out=4, data_segs_in=20, segs_in=22, snd_mss=1000)
AFTER = connection(
    bytes_sent=480, bytes_received=131_000 + 1000, segs_out=10 + 50, data_segs_out=4 + 5, data_segs_in=151, segs_in=163,
    snd_mss=1000, rtt=500, cwnd=10, delivered=5,
)  # fmt: skip


def watched(*lines: dict[str, object], start: float = 1.0, end: float = 2.0, **started: object) -> Watched:
    return within(read_output(printed(*lines, **started)), start, end)


def named(totals: Totals) -> dict[str, float]:
    found = list(values(totals))
    assert {each.metric for each in found} <= {spec.name for spec in METRICS}
    assert len({each.metric for each in found}) == len(found)
    return {each.metric: each.value for each in found}


def test_what_came_before_the_window_is_not_in_it() -> None:
    early = connection(bytes_received=10)
    seen = watched(sample(0.1, early), sample(0.9, BEFORE), sample(1.5), sample(2.05, AFTER), sample(3, connection()))
    assert seen.warnings == ()
    found = named(seen.totals)
    assert (found["bytes.received"], found["segments.received"], found["segments.sent"]) == (131_000, 131, 5)
    assert (found["acks.sent"], found["acks.received"]) == (45, 10)
    assert found["acks.sent.mss"] == pytest.approx(131 / 45)
    assert found["acks.sent.bytes"] == pytest.approx(131_000 / 45)
    assert (found["rtt"], found["cwnd"], found["mss"], found["connections.opened"]) == (500e-6, 10, 1000, 0)


def test_requests_are_those_of_the_disks_at_the_same_instants() -> None:
    def last(**more: object) -> dict[str, float]:
        return named(watched(sample(1, BEFORE, disks=disk(3)), sample(2, AFTER, **more)).totals)

    def disk(reads: int) -> list[object]:
        return [["nbd0", [reads, 4, 512, 2048]]]

    found = last(disks=disk(4))
    assert (found["requests"], found["acks.per-request"], found["segments.sent.per-request"]) == (1, 55, 5)
    assert not {"requests", "acks.per-request"} & last().keys(), "the disk is gone"
    idle = last(disks=disk(3))
    assert idle["requests"] == 0 and "acks.per-request" not in idle, "nothing is divided by 0"


def test_connections_opened_closed_or_never_seen_in_the_window_count() -> None:
    final = connection(9, bytes_sent=5000, segs_out=8, data_segs_out=5)
    seen = watched(
        sample(1), sample(1.5, connection(9, bytes_sent=10)), closed(1.55, final), sample(1.6, gone=[9]), sample(2)
    )
    assert (seen.totals.bytes_sent, seen.totals.opened, seen.totals.closed) == (5000, 1, 1)
    assert seen.warnings == ()
    seen = watched(sample(1), closed(1.55, connection(9, bytes_sent=5000)), sample(2))
    assert (seen.totals.bytes_sent, seen.totals.connections, seen.totals.opened, seen.totals.closed) == (5000, 1, 1, 1)
    # A look takes a while: what closes in it is printed before its sample, whose time is that of its beginning.
    final = connection(9, bytes_sent=5000)
    within_last = watched(sample(1), closed(2.01, final), sample(2))
    assert (within_last.totals.bytes_sent, within_last.totals.opened, within_last.totals.closed) == (5000, 1, 1)
    seen_by_both = watched(sample(1), closed(2.01, final), sample(2, connection(9, bytes_sent=4000)))
    assert seen_by_both.totals == within_last.totals


@pytest.mark.parametrize("row", [[], [connection(9, bytes_sent=4000)]], ids=["gone", "still seen"])
def test_one_that_closed_while_the_first_sample_was_taken_did_nothing_in_the_window(row: list[list[object]]) -> None:
    seen = watched(closed(1.01, connection(9, bytes_sent=5000)), sample(1, *row), sample(1.5, gone=[9]), sample(2))
    assert (seen.totals.bytes_sent, seen.totals.connections, seen.warnings) == (0, 0, ())


def test_a_window_without_samples_or_ends_is_told_what_is_missing() -> None:
    row = connection(9, bytes_sent=10)
    seen = watched(sample(1, row), sample(1.6, gone=[9]), sample(2), events=False, reason="no BTF")
    (warning,) = seen.warnings
    assert warning.startswith("1 connection closed within the measured phase")
    assert warning.endswith("(no BTF)")
    late, early = sample(1.2, BEFORE), sample(1.8, AFTER)
    first, second = watched(late, early).warnings
    assert "first sample came after the load had started" in first
    assert "no sample came after the load had ended" in second
    assert watched(late).warnings == ("too few samples in the measured phase",)


def test_counters_wrap_at_32_bits_and_those_of_the_namespace_are_named() -> None:
    before, after = connection(segs_out=2**32 - 5, data_segs_out=2**32 - 2), connection(segs_out=5, data_segs_out=3)
    totals = watched(sample(1, before), sample(2, after)).totals
    assert (totals.segments_sent, totals.acks_sent) == (5, 5)
    first, last = sample(1, BEFORE, counters=[3, None]), sample(2, AFTER, counters=[24, None])
    found = named(watched(first, last).totals)
    assert found["delayed-acks"] == 21
    assert "timeouts" not in found


@pytest.mark.parametrize("text", [b"", b"{}\n", b'{"event":"sample"}\n', b"[1]\n", printed()[0] * 2])
def test_what_the_agent_does_not_print_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="x"):
        read_output(text.splitlines(keepends=True), "x")


def test_lines_cut_off_are_left_out_and_numbers_beyond_all_bounds_refused() -> None:
    for place, value in ((2, 70000), (5, -1), (7, [0] * 24), (7, [2**63] * 25)):
        row = connection()
        row[place] = value
        with pytest.raises(ParseError, match="is no line of the agent"):
            read_output(printed(sample(1, row)))
    lines = printed(sample(1, BEFORE), sample(2, AFTER))
    assert len(read_output([*lines[:-1], lines[-1][:-9]]).looks) == 1


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=6), st.floats(0, 8), st.floats(0, 8))
def test_no_order_of_counts_and_no_window_breaks_it(counts: list[int], start: float, end: float) -> None:
    rows = [connection(segs_out=n, data_segs_out=n // 2, bytes_sent=n, rtt=n, cwnd=n) for n in counts]
    named(watched(*(sample(at, row) for at, row in enumerate(rows)), start=start, end=end).totals)


def followed(*lines: dict[str, object]) -> Follower:
    seen = Follower()
    for line in printed(*lines):
        seen.add(LINES.decode(line))
    return seen


def test_followed_counts_begin_at_0_and_what_closed_stays_in_the_sums() -> None:
    seen = followed(sample(1, connection(bytes_sent=100)), sample(3, connection(bytes_sent=700)))
    (one,) = seen.connections()
    assert (one.totals.bytes_sent, seen.totals().bytes_sent, seen.elapsed) == (600, 600, 2.0)
    assert (seen.opened, seen.ended) == (0, 0)
    seen = followed(sample(1), sample(2, connection(1, bytes_sent=5), connection(2, bytes_received=50)))
    assert [each.connection.cookie for each in seen.connections()] == [2, 1], "the busiest comes first"
    assert (seen.totals().bytes_moved, seen.opened) == (55, 2)
    row = connection(1, bytes_sent=100)
    ends = closed(1.5, connection(1, bytes_sent=400)), closed(1.6, connection(2, bytes_sent=30))
    seen = followed(sample(1, row), *ends, sample(2, gone=[1]))
    assert (seen.totals().bytes_sent, seen.opened, seen.ended, seen.connections()) == (330, 1, 2, [])
    seen = followed(sample(1, row), sample(2, connection(1, bytes_sent=200)), sample(3, gone=[1]))
    assert (seen.totals().bytes_sent, seen.ended) == (100, 1), "what was last seen of it"
    for first in (sample(1), sample(1, row)):
        seen = followed(closed(1.01, row), first, sample(2, gone=[1]))
        assert (seen.totals().bytes_sent, seen.opened, seen.ended, seen.connections()) == (0, 0, 0, [])
    seen = followed(*(sample(at, acks=[BYTES]) for at in (1, 2, 3)))
    assert seen.totals().acks == {("sent.bytes", 2816, 2944): 20}


BYTES = ["sent.bytes", 2816, 2944, 10]
GAP = ["received.gap", 1000, 1064, 3]


def test_acks_of_the_window_are_added_up_to_histograms_and_percentiles_in_base_units() -> None:
    bins = {0.5: [BYTES], 1: [BYTES], 1.5: [BYTES, GAP], 2: [BYTES]}
    acks = watched(*(sample(at, acks=each) for at, each in bins.items())).totals.acks
    assert acks == {("sent.bytes", 2816, 2944): 20, ("received.gap", 1000, 1064): 3}
    acks = Acks({("sent.bytes", 2816, 2944): 99, ("sent.bytes", 0, 1): 1, ("received.gap", 1000, 1064): 3})
    named = {each.metric: each.value for each in ack_values(acks)}
    assert named["acks.sent.advance.p50"] == 2880
    assert named["acks.received.gap.p99"] == pytest.approx(1032e-9)
    assert "acks.sent.gap.p50" not in named, "there are none"
    assert ack_histograms(acks).rows() == [
        (None, "acks.sent.advance", 0.0, 1.0, 1),
        (None, "acks.sent.advance", 2816.0, 2944.0, 99),
        (None, "acks.received.gap", pytest.approx(1000e-9), pytest.approx(1064e-9), 3),
    ]
    for row in (["sent.bytes", 5, 5, 1], ["sent.bytes", 5, 6, 0], ["x", 5, 6, 1], ["sent.gap", -1, 6, 1]):
        with pytest.raises(ParseError):
            read_output(printed(sample(1, acks=[row])))
