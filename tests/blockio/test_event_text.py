"""Single requests as rows: golden files for both widths, and columns that stay where their headings are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.blockio.text import event_form
from storlab.blockio.trace_output import Event

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


def test_what_is_no_terminal_gets_names_in_fixed_columns() -> None:
    assert event_form(None) == event_form(120)
