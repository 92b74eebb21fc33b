"""The two readers of sysbench's intervals: where the fast one reads, it reads what the careful one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.formats.sysbench.intervals import LAYOUTS, Test, alike, each, read_intervals

GOLDEN = Path(__file__).parent / "golden"


def body_of(name: str) -> bytes:
    lines = (GOLDEN / f"sysbench-{name}.txt").read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if line.startswith(b"[ ") and b"queue" not in line)


BODIES: dict[Test, bytes] = {"oltp": body_of("oltp"), "fileio": body_of("fileio"), "events": body_of("rate")}

tests = st.sampled_from(list(LAYOUTS))
numbers = st.one_of(
    st.integers(0, 10**9).map(lambda cents: f"{cents / 100:.2f}"),
    st.integers(0, 10**6).map(str),
    st.sampled_from(["", ".", "1.2.3", "5.", ".5", "-1.00", "nan", "inf", "1e3", " 7", "9" * 400]),
)


@st.composite
def lines(draw: st.DrawFn) -> tuple[Test, bytes]:
    """Lines of one layout whose numbers are mostly numbers, some of them with something put into it."""
    test = draw(tests)
    text = b""
    for at in range(draw(st.integers(1, 5))):
        names = {"t", "threads", "tps", "qps", "read", "write", "other", "percentile", "latency"}
        names |= {"errors", "reconnects", "fsync", "eps"}
        line = LAYOUTS[test].format_map({name: draw(numbers) for name in names} | {"t": f"{2 * at}"}).encode()
        if draw(st.integers(0, 9)) == 0:
            place = draw(st.integers(0, len(line)))
            line = line[:place] + draw(st.sampled_from([b"9", b" ", b".", b"s", b"/", b",", b"\n"])) + line[place:]
        text += line + b"\n"
    return test, text[: draw(st.integers(len(text) - 3, len(text)))]


def agree(body: bytes, test: Test) -> None:
    rows = alike(body, 0, len(body), LAYOUTS[test])
    if rows is not None:
        count, careful = each(body, LAYOUTS[test])
        assert count == rows.height
        assert rows.equals(careful)


@pytest.mark.parametrize("test", list(LAYOUTS))
def test_what_sysbench_prints_is_read_by_the_fast_one(test: Test) -> None:
    rows = alike(BODIES[test], 0, len(BODIES[test]), LAYOUTS[test])
    assert rows is not None
    assert rows.height == BODIES[test].count(b"\n")
    agree(BODIES[test], test)


@given(lines())
def test_both_readers_agree_on_lines_with_any_numbers(drawn: tuple[Test, bytes]) -> None:
    test, body = drawn
    agree(body, test)


@given(tests, st.binary(max_size=40), st.integers(0, 10**6), st.integers(0, 40))
def test_both_readers_agree_on_damaged_lines(test: Test, new: bytes, place: int, length: int) -> None:
    body = BODIES[test]
    at = place % (len(body) + 1)
    agree(body[:at] + new + body[at + length :], test)


@given(tests, st.integers(0, 10**6))
def test_both_readers_agree_on_truncated_lines(test: Test, place: int) -> None:
    agree(BODIES[test][: place % (len(BODIES[test]) + 1)], test)


@pytest.mark.parametrize(
    "damage",
    [
        (b"thds: ", b"th9ds: "),
        (b"thds: ", b"thds9: "),
        (b"(ms,", b"(ms7,"),
        (b" lat", b"5 lat"),
        (b"(r/w/o", b"(r/1w/o"),
        (b"[ 2s", b"[1 2s"),
        (b"0.00\n", b"0.0.0\n"),
        (b"tps: 5409.01", b"tps: "),
        (b"\n[ 6s", b"\nmysqld: [Note]\n[ 6s"),
    ],
)
def test_what_is_not_alike_is_left_to_the_careful_one(damage: tuple[bytes, bytes]) -> None:
    body = BODIES["oltp"]
    damaged = body.replace(*damage, 1)
    assert damaged != body
    assert alike(damaged, 0, len(damaged), LAYOUTS["oltp"]) is None
    test, _, rows = read_intervals(damaged, 0, len(damaged))
    assert test == "oltp"
    assert rows.height >= body.count(b"\n") - 1
