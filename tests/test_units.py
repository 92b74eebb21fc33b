"""Values that users write and read: sizes, durations, shares, levels; and things that hang together."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import Problem, StudyError
from storlab.base.levels import Numbers, is_sweep, numbers_of
from storlab.base.text import alike, connected, printable
from storlab.base.units import MAX_SIZE, parse_duration, parse_share, parse_size, shown, size_text


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4k", 4096), ("4K", 4096), ("4kB", 4096), ("4KiB", 4096), (" 4 k ", 4096), ("512", 512), ("512B", 512),
        ("1.5G", 3 * 2**29), ("0.5k", 512), ("2T", 2**41), ("1p", 2**50), ("0", 0), (0, 0), (4096, 4096),
        ("9007199254740993", 9007199254740993), ("8191P", 8191 * 2**50), (MAX_SIZE, MAX_SIZE),
    ],
)  # fmt: skip
def test_sizes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize(
    "written",
    [
        *("", "k", "-1", "-1k", "1,5G", "4kk", "4x", "1e6", "0x10", "٤k", "1_000", "inf", "nan", "0.3", "1.0001k"),
        *("8192P", "9" * 30, "9" * 5000, -1, 1.5, True, None, [], {}, math.nan, MAX_SIZE + 1),
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused_in_one_sentence(written: object) -> None:
    with pytest.raises(ValueError) as raised:
        parse_size(written)
    assert len(str(raised.value)) < 200


@given(st.integers(0, MAX_SIZE))
def test_the_text_of_a_size_is_that_size(size: int) -> None:
    assert parse_size(size_text(size)) == size and parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("60s", 60), ("250ms", 0.25), ("1h30m", 5400), ("1h 30m", 5400), ("1 min", 60), ("2d", 172800), ("5us", 5e-6),
        ("5µs", 5e-6), ("1.5s", 1.5), ("10sec", 10), ("0s", 0), (0, 0), (2.5, 2.5), (10, 10),
    ],
)  # fmt: skip
def test_durations(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    [
        *("", "s", "10", "-1s", "1 fortnight", "1s2", "1h-5m", "ten s", "1e3s", "٥s", "367d", "9" * 400 + "s"),
        *(-1, -0.1, math.nan, math.inf, -math.inf, True, None, [], 10**400),
        pytest.param("1" * 10**6, id="a million digits, which hold nobody up"),
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_in_one_sentence(written: object) -> None:
    with pytest.raises(ValueError) as raised:
        parse_duration(written)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("written", ["5%", "±5%", "+/-5%", "+-5 %", " 5.0% ", 0.05])
def test_shares(written: object) -> None:
    assert parse_share(written) == pytest.approx(0.05)


@pytest.mark.parametrize(
    "written",
    [
        *("5", "0%", "100%", "-5%", "5%%", "%", "", 0, 1, 5, -0.1, True, None, math.nan, []),
        pytest.param(" " * 10**6 + "x", id="a million blanks, which hold nobody up"),
    ],
)
def test_what_is_no_share_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        parse_share(written)


@given(st.text(max_size=20) | st.integers() | st.floats() | st.none() | st.booleans())
def test_anything_is_read_or_refused(value: Any) -> None:
    for parse in (parse_size, parse_duration, parse_share):
        try:
            result = parse(value)
        except ValueError as error:
            assert str(error)
        else:
            assert 0 <= result < math.inf


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
)


@given(VALUES, st.integers(10, 80))
def test_any_value_is_shown_on_one_short_line(value: Any, width: int) -> None:
    text = shown(value, width)
    assert len(text) <= width and text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", '"a"'), (True, "true"), (None, "nothing"), ([1, "b"], '[1, "b"]'), ({"a": 1}, "{ a = 1 }"), ({}, "{}"),
        ("a\nb\t\x1b", '"a\\nb\\t\\u001B"'), (10**400, "this number"), ("x" * 100, '"' + "x" * 57 + " …"),
    ],
)  # fmt: skip
def test_values_are_shown_as_their_user_wrote_them(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("around", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "tables"])
def test_however_deep_a_value_is_it_is_shown_on_one_short_line(around: Callable[[Any], Any]) -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = around(value)
    assert "…" in shown(value) and len(shown(value)) <= 60


@given(st.text())
def test_printable_text_drives_no_terminal(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["1", "8", "32"], Numbers("", (1, 8, 32))), (["0.5", "2"], Numbers("", (0.5, 2))),
        (["512", "4k", "1M"], Numbers("B", (512, 4096, 2**20))), (["64k", "1m"], Numbers("B", (65536, 2**20))),
        (["0ms", "1ms", "10ms"], Numbers("s", (0, 0.001, 0.01))), (["0", "30s", "1m"], Numbers("s", (0, 30, 60))),
    ],
)  # fmt: skip
def test_numbers_sizes_and_durations_are_read_as_such(labels: list[str], numbers: Numbers) -> None:
    assert numbers_of(labels) == numbers


@pytest.mark.parametrize(
    "labels",
    [[], ["ext4", "xfs"], ["1", "none"], ["-1", "2"], ["4k", "1ms"], ["5", "1ms"], ["true", "false"], ["1..2k"]],
)
def test_names_are_not_numbers(labels: list[str]) -> None:
    assert numbers_of(labels) is None


def test_a_sweep_has_three_or_more_different_numbers() -> None:
    assert is_sweep(["1", "2", "4"])
    assert not is_sweep(["1500", "9000"])  # one pair: a question
    assert not is_sweep(["1", "1.0", "2"])


@given(st.lists(st.integers(1, 2**50), min_size=1))
def test_what_a_size_is_shown_as_is_read_as_that_size(sizes: list[int]) -> None:
    found = numbers_of(map(size_text, sizes))
    assert found is not None and found.values == tuple(map(float, sizes))


@given(st.lists(st.text(max_size=80), max_size=5))
def test_no_text_breaks_it(labels: list[str]) -> None:
    found = numbers_of(labels)
    assert found is None or len(found.values) == len(labels)


THINGS = st.integers(0, 9)


@given(st.lists(st.tuples(THINGS, THINGS)))
def test_things_hang_together_exactly_where_a_way_leads_from_one_to_the_other(pairs: list[tuple[int, int]]) -> None:
    found = connected(range(10), pairs)
    for start in range(10):
        reached, ahead = {start}, [start]
        while ahead:
            here = ahead.pop()
            beside = {b for a, b in pairs if a == here} | {a for a, b in pairs if b == here}
            ahead += beside - reached
            reached |= beside
        assert {thing for thing in range(10) if found[thing] == found[start]} == reached
        assert found[start] == min(reached), "by the first of them"


@given(st.lists(st.builds("{} is {}".format, st.sampled_from("abc"), st.integers(0, 30)), max_size=80))
def test_of_sentences_that_differ_in_numbers_alone_the_first_three_are_said_and_how_many_more(those: list[str]) -> None:
    found, left = alike(those), list(dict.fromkeys(those))
    kinds = {name: [each for each in left if each.startswith(name)] for name in dict.fromkeys(each[0] for each in left)}
    assert found == [
        said
        for each in kinds.values()
        for said in (
            *each[:3],
            *([f"and {len(each) - 3} more that differ from the last in numbers alone"] * (len(each) > 3)),
        )
    ]


def test_thirty_thousand_problems_of_a_study_are_said_line_by_line_in_groups() -> None:
    problems = [Problem(f"cells[{n}].size", f"{n} is no size", line=n % 3 + 1) for n in range(30_000)]
    said = str(StudyError("s.toml", [*problems, Problem("x", "no such key", line=1)])).splitlines()
    assert len(said) == 3 * 4 + 1
    assert said[:2] == ["s.toml: line 1: cells[0].size: 0 is no size", "s.toml: line 1: cells[3].size: 3 is no size"]
    assert said.count("and 9,997 more that differ from the last in numbers alone") == 3
    assert "s.toml: line 1: x: no such key" in said
