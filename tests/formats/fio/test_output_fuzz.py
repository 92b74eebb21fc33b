"""Damaged output either parses or is refused by name; nothing else escapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storlab.errors import ParseError, TrialError
from storlab.formats.fio.output import parse_fio

from .samples import GOLDEN, golden

NAMES = sorted(path.name for path in GOLDEN.glob("fio-*.json"))
MANY = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ODD = st.one_of(
    st.none(), st.booleans(), st.floats(allow_nan=False), st.text(max_size=5), st.builds(list), st.builds(dict),
    st.integers(-(1 << 70), 1 << 70), st.lists(st.integers(), max_size=2), st.builds(dict, x=st.integers()),
)  # fmt: skip


def survives(text: bytes) -> None:
    try:
        parse_fio(text, "some.json")
    except ParseError as error:
        assert error.source == "some.json"
        assert str(error).startswith("some.json")
        assert error.line is None or 1 <= error.line <= text.count(b"\n") + 1
    except TrialError as error:
        assert str(error)


@MANY
@given(st.sampled_from(NAMES), st.floats(0, 1), st.floats(0, 1))
def test_a_piece_of_an_output(name: str, start: float, end: float) -> None:
    text = golden(name)
    survives(text[int(start * len(text)) : int(end * len(text))])
    survives(text[: int(end * len(text))])


@MANY
@given(st.sampled_from(NAMES), st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4)), max_size=6))
def test_bytes_overwritten(name: str, changes: list[tuple[float, bytes]]) -> None:
    text = bytearray(golden(name))
    for where, new in changes:
        at = int(where * len(text))
        text[at : at + len(new)] = new
    survives(bytes(text))


@MANY
@given(st.sampled_from(NAMES), st.data())
def test_a_value_replaced_or_gone(name: str, data: st.DataObject) -> None:
    text = golden(name)
    root = json.loads(text[text.index(b"{") :])
    for _ in range(data.draw(st.integers(1, 3))):
        _mutate(root, data)
    survives(json.dumps(root, indent=2).encode())


def _mutate(root: Any, data: st.DataObject) -> None:
    place = root
    # Down to depth 6, more often through the jobs than past them.
    for _ in range(data.draw(st.integers(0, 6))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        inner = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
        if not inner:
            break
        place = place[data.draw(st.sampled_from(inner))]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    if data.draw(st.booleans()):
        place[key] = data.draw(ODD)
    else:
        del place[key]


@MANY
@given(st.binary(max_size=200))
def test_any_bytes(text: bytes) -> None:
    survives(text)
    survives(b"{\n" + text + b"\n}")


@pytest.mark.parametrize("name", NAMES)
def test_every_line_removed_in_turn(name: str) -> None:
    lines = golden(name).splitlines(keepends=True)
    for at in range(0, len(lines), max(len(lines) // 150, 1)):
        survives(b"".join(lines[:at] + lines[at + 1 :]))
