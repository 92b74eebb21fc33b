"""The tracer's lines: read as they are, refused with file and line where they are not, and shown as rows."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import ParseError
from storlab.blockio.text import event_form
from storlab.blockio.trace_output import (
    EVENT_COLUMNS,
    LATENCY_COLUMNS,
    Event,
    Output,
    decode_lines,
    decode_output,
    event_frame,
    read_output,
)
from storlab.measurements import REQUEST_COLUMNS

STARTED = {
    "event": "started", "hook": "btf", "reason": None, "monotonic_ns": 1_000_000_000, "realtime_ns": 7,
    "disks": ["loop0"], "latency": True,
}  # fmt: skip
ROW = ["loop0", "write", "sync+meta", 4096, 512, None, 17, [17, 17, 17, 17, 17]]


def counts(**changed: Any) -> dict[str, Any]:
    return {
        "event": "counts", "final": True, "monotonic_ns": 3_500_000_000, "realtime_ns": 9, "requests": [ROW, ROW],
        "latency": [["loop0", "write", "service", 1024, 1088, 3], ["loop0", "write", "service", 1024, 1088, 4]],
        "others": [["loop0", "write", "back_merge", 5]], "lost": {"full": 0, "missed": 0, "untimed": 0, "events": 0},
        **changed,
    }  # fmt: skip


EVENT = ["loop0", "write", "sync", 4096, 2048, 1234, "fio", 2_000_000_000]


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def decoded(text: bytes, source: str = "") -> Output:
    return decode_output(BytesIO(text), source)


def test_everything_becomes_frames() -> None:
    trace = decoded(lines(STARTED, EVENT, counts()))
    assert (trace.counts.final, trace.duration, trace.started.hook) == (True, 2.5, "btf")
    assert trace.warnings() == ()
    requests, latency = trace.counts.request_frame(), trace.counts.latency_frame()
    assert dict(requests.schema) == REQUEST_COLUMNS
    assert requests.rows() == [("loop0", "write", "sync+meta", 4096, 512, None, 34, 34, 34, 34, 34, 34)]
    assert dict(latency.schema) == LATENCY_COLUMNS
    assert latency.rows() == [("loop0", "write", "service", 1.024e-6, 1.088e-6, 7)]
    assert trace.counts.others == (("loop0", "write", "back_merge", 5),)


def test_latencies_of_others_are_what_is_left_of_all() -> None:
    def bins(*each: tuple[str, int, int]) -> list[list[object]]:
        return [["vda", "write", what, lower, lower + 64, count] for what, lower, count in each]

    everybody = bins(("service", 1024, 9), ("service", 2048, 2), ("queued", 1024, 3))
    own = bins(("service", 1024, 1), ("service", 1024, 3))
    kernel = bins(("service", 1024, 2), ("service", 2048, 2))
    found = decoded(lines(STARTED, counts(latency=everybody, own_latency=own, kernel_latency=kernel))).counts
    counted = [frame.select("what", "lower", "count").rows() for frame in found.latency_by_issuer()]
    assert counted == [
        [("service", 1.024e-6, 4)],
        [("service", 1.024e-6, 2), ("service", 2.048e-6, 2)],
        [("queued", 1.024e-6, 3), ("service", 1.024e-6, 3)],
    ]
    assert all(dict(frame.schema) == LATENCY_COLUMNS for frame in found.latency_by_issuer())


@given(st.integers(0, 2**53), st.integers(0, 2**62))
def test_whatever_event_is_read_there_is_room_for_it_in_a_frame(sector: int, number: int) -> None:
    (event,) = decode_lines(lines([*EVENT[:3], number, sector, number, "fio", number]))
    assert isinstance(event, tuple)
    frame = event_frame([event])
    assert dict(frame.schema) == EVENT_COLUMNS
    assert frame.row(0)[3:6] == ("sync", number, sector * 512)


def test_counts_are_since_the_start_and_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    trace = decoded(lines(STARTED, counts(final=False, requests=[ROW]), counts()))
    assert trace.counts.request_frame()["count"].to_list() == [34]
    trace = decoded(lines(STARTED))
    assert trace.counts.request_frame().is_empty()
    assert not trace.counts.final
    assert [type(line).__name__ for line in decode_lines(lines(STARTED, EVENT, counts()))] == [
        "Started", "tuple", "Counts",
    ]  # fmt: skip
    with pytest.raises(ParseError, match="No such file"):
        read_output(tmp_path / "trace.jsonl")


def test_what_was_lost_is_said_in_words_and_what_is_not_counted_is_said_to_be_unknown() -> None:
    lost = {"full": 3, "missed": 2, "untimed": 1, "events": 4, "comms": 5}
    warnings = decoded(lines(STARTED, counts(lost=lost))).warnings()
    assert len(warnings) == 5
    assert warnings[0].startswith("3 requests did not fit")
    (warning,) = decoded(lines(STARTED, counts(lost={"missed": None}))).warnings()
    assert warning.startswith("how often the kernel could not run the tracer is not known")


@pytest.mark.parametrize(("operation", "alignment"), [("read", 4096), ("drv_in", None), ("other", None)])
def test_a_command_that_lies_nowhere_has_no_alignment(operation: str, alignment: int | None) -> None:
    (event,) = decode_lines(lines(["vda", operation, "", 4096, 0, 1, "cat", 1]))
    assert isinstance(event, tuple)
    assert event_frame([event])["alignment"].to_list() == [alignment]
    assert event_form(120).row(event).split()[-1] == str(alignment or "-")


@pytest.mark.parametrize("kept", [1, 40, 400])
def test_a_killed_tracers_last_line_is_left_out_and_missed(kept: int) -> None:
    whole = lines(STARTED, counts(final=False, requests=[ROW]))
    trace = decoded(whole + lines(counts())[:kept])
    assert trace.counts.request_frame()["count"].to_list() == [17]
    assert trace.warnings()[0].startswith("the tracer did not end cleanly")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "f:1: the tracer has not started"),
        (b'{"event": "start', "f:1: the tracer has not started"),
        (b"rubbish\n", "f:1: is no line of the tracer"),
        (lines(counts()), "f:1: the tracer's first line"),
        (lines(STARTED, STARTED), "f:2: starts a second time"),
        (lines(STARTED, {"event": "counts"}), "f:2: is no line of the tracer: Object missing required field"),
        (lines(STARTED, {"event": "else"}), "f:2: is no line"),
        (lines(STARTED, EVENT[:-1]), "f:2: is no line"),
        (lines(STARTED, counts(requests=[[*ROW[:3], -1, *ROW[4:]]])), "f:2: is no line"),
        (lines(STARTED, counts(requests=[[*ROW[:3], 1 << 70, *ROW[4:]]])), "f:2: is no line"),
        (lines(STARTED, [*EVENT[:4], 1 << 62, *EVENT[5:]]), "f:2: is no line"),
        (lines(STARTED) + b"\xff\n", "f:2: is no line"),
    ],
)
def test_what_is_no_tracers_output_is_named_with_its_line(text: bytes, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        decoded(text, "f")
    assert str(caught.value).startswith(says)


GOLDEN = Path(__file__).parent / "golden"
FLAGS = ("preflush", "fua", "sync", "meta", "prio", "readahead", "background", "atomic", "swap")
OPERATIONS = ("read", "write", "flush", "discard", "write_zeroes", "zone_append", "zone_reset_all", "drv_out")

EVENTS: list[Event] = [
    ("nvme0n1", "write", "sync", 4096, 2048, 1234, "mariadbd", 163512345678),
    ("nvme0n1p2", "flush", "preflush", 0, 0, 77, "kworker/u8:2", 163512345999),
    ("nvme0n1", "write", "preflush+fua+sync+meta", 16384, 123456789 * 32, 4194304, "xfsaild/nvme0n1", 163512346000),
    ("loop0", "write", "sync+meta+prio+background", 131072, 2 << 33, 15730, "jbd2/loop0-8", 163512346100),
    ("loop0", "write", "", 512, 1, 15730, "dd", 163512346200),
    ("loop0", "write_zeroes", "+".join(FLAGS), 1 << 30, 1 << 40, 4194304, "a name \x1b[31m", 163512346300),
]

events = st.tuples(
    st.sampled_from(["vda", "loop12", "nvme0n1p2"]),
    st.sampled_from(OPERATIONS),
    st.lists(st.sampled_from(FLAGS), unique=True, max_size=5).map("+".join),  # no request has more
    st.integers(0, 1 << 26),
    st.integers(0, 1 << 36),  # sectors: 32 TiB
    st.integers(0, 4194304),
    st.text("abcdefghijklm/:-0123456789", min_size=1, max_size=15),
    st.integers(0, 1 << 60),
)


@pytest.mark.parametrize("width", [80, 120])
def test_rows_are_as_the_golden_file_has_them(width: int) -> None:
    form = event_form(width)
    text = f"{form.heading}\n{form.rows(EVENTS)}"
    assert text == (GOLDEN / f"events-{width}.txt").read_text()


@pytest.mark.parametrize("width", [80, 120])
@given(event=events)
def test_rows_fit_the_terminal_and_stand_below_their_headings(width: int, event: Event) -> None:
    form = event_form(width)
    row, heading = form.row(event), form.heading
    assert len(row) <= width
    for name in heading.split()[1:]:
        start = heading.index(f" {name}") + 1
        assert row[start - 1] == " "
        assert row[start] != " "


def test_letters_are_explained_and_names_need_no_words() -> None:
    assert "s sync, m meta" in (event_form(80).legend or "")
    assert event_form(120).legend is None
    assert event_form(None) == event_form(120)
