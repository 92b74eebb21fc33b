"""What stands before each line where something else passed a tool's output on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storlab.formats.prefixes import as_shown, labels_of, peeled

_LINES = ("result {", "", "  iops 1", "}")


def _behind(*prefixes: str) -> bytes:
    """The lines behind these prefixes, in turn; an empty one as programs leave it, without the space after it."""
    each = (prefixes[at % len(prefixes)] + line for at, line in enumerate(_LINES))
    return "\n".join(line if line.strip() else line.rstrip() for line in each).encode()


CASES = json.loads((Path(__file__).parent / "cases/prefixes.json").read_text())


@pytest.mark.parametrize("prefixes", CASES, ids=[prefixes[0] for prefixes in CASES])
def test_what_stands_before_each_line_is_taken_away_and_lines_keep_their_numbers_and_indents(
    prefixes: list[str],
) -> None:
    *_, last = peeled(_behind(*prefixes))
    assert last.decode().split("\n") == list(_LINES)


def test_lines_of_several_programs_are_left_as_they_are_and_the_programs_named() -> None:
    mixed = _behind("pod-0 | ", "pod-1 | ")
    assert list(peeled(mixed)) == [mixed]
    assert labels_of(mixed) == ["pod-0", "pod-1"]


def test_text_that_nothing_stands_before_stays_as_it_is() -> None:
    text = b"  read: IOPS=1\n   > 50\n| a | b |\n[PASS] x\n[FAIL] y\nfio: a\nnote: b\n"
    assert list(peeled(text)) == [text]
    assert as_shown(b"50%\r\n75%\r100%\r\n") == b"50%\n100%\n"
