from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.study.substitution import Outgrown, Substitution, Word

VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abc {}", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
PLAIN = st.recursive(
    st.booleans() | st.integers() | st.text("abc ", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def substitution(**values: Any) -> Substitution:
    words = {name: Word(value, ("factors", name, "level")) for name, value in values.items()}
    return Substitution(words, late=("target", "round"))


def put_in(tree: Any, late: bool = False, **values: Any) -> Any:
    return substitution(**values).apply(tree, ("top",), late=late)


@given(PLAIN)
def test_a_word_that_stands_alone_keeps_its_values_type(value: Any) -> None:
    assert put_in({"key": "{w}"}, w=value) == {"key": value}
    assert type(put_in("{w}", w=value)) is type(value)


@given(PLAIN)
def test_a_tree_without_words_stays_as_it_is(tree: Any) -> None:
    assert put_in(tree, w=1) == tree


@given(st.lists(PLAIN, max_size=3), st.lists(PLAIN, max_size=3), st.lists(PLAIN, max_size=3))
def test_a_list_is_spliced_into_a_list(before: list[Any], value: list[Any], after: list[Any]) -> None:
    assert put_in([*before, "{w}", *after], w=value) == [*before, *value, *after]


def test_values_hold_words_themselves_and_a_list_within_a_table_is_not_spliced() -> None:
    assert put_in({"key": "{w}"}, w=[1, 2]) == {"key": [1, 2]}
    assert put_in(["{a}", "<{a}>", "{list}"], a="{b}{b}", b="x", list=["{a}", 1]) == ["xx", "<xx>", "xx", 1]


@pytest.mark.parametrize(
    ("value", "text"), [("4k", "4k"), (5, "5"), (0.5, "0.5"), (True, "true"), (False, "false"), ("", "")]
)
def test_a_word_within_a_text_is_put_in_as_text(value: Any, text: str) -> None:
    assert put_in("a{w}b{w}", w=value) == f"a{text}b{text}"


@given(st.dictionaries(st.sampled_from(["a", "b", "a-b", "a_1"]), PLAIN, min_size=1))
def test_a_key_of_a_level_is_its_value(level: dict[str, Any]) -> None:
    for key, value in level.items():
        assert put_in({"k": f"{{w.{key}}}"}, w=level) == {"k": value}
        assert put_in({"k": f"{{w.x.{key}}}"}, w={"x": level}) == {"k": value}


@given(st.text("ab{} ", max_size=12))
def test_doubled_braces_stand_for_braces(text: str) -> None:
    assert put_in(text.replace("{", "{{").replace("}", "}}"), a="x", b="y", ab="z") == text


@pytest.mark.parametrize("text", ["{1}", "{ a }", "${}", "a{2,3}", "{a b}", "{print $1}", "{", "}", '{"a": 1}'])
def test_what_is_no_name_needs_no_doubling(text: str) -> None:
    assert put_in(text, a=1) == text


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from("abcd"), VALUES | st.sampled_from(["{a}", "{b}x", "{c.a}", ["{d}"]])), VALUES)
def test_words_in_circles_end(values: dict[str, Any], tree: Any) -> None:
    made = substitution(**values)
    made.apply(tree, ("top",))
    assert made._active == []


@pytest.mark.parametrize(
    ("values", "circle"),
    [
        ({"a": "{a}"}, "a → a"),
        ({"a": "{b}", "b": "{a}"}, "a → b → a"),
        ({"a": ["{b}"], "b": {"x": "-{a}-"}}, "a → b → a"),
        ({"a": {"x": "{a.x}"}}, "a → a"),
    ],
)
def test_a_word_that_contains_itself_is_a_problem_where_it_does(values: dict[str, Any], circle: str) -> None:
    made = substitution(**values)
    made.apply({"key": "{a}"}, ("top",))
    ((path, message),) = made.problems
    assert message == f"{{{circle[-1]}}} contains itself: {circle}"
    assert path[0] == "factors"


def test_words_that_multiply_are_stopped() -> None:
    values: dict[str, Any] = {f"w{n}": f"{{w{n + 1}}}" * 10 for n in range(9)}
    with pytest.raises(Outgrown):
        put_in("{w0}", **values, w9="x")
    lists: dict[str, Any] = {f"w{n}": [f"{{w{n + 1}}}"] * 10 for n in range(9)}
    with pytest.raises(Outgrown):
        put_in(["{w0}"], **lists, w9="x")


def test_late_words_wait_and_doubled_ones_are_kept_from_being_filled_in() -> None:
    assert put_in(["{target}/{w}", "{{target}}", "{{w}}"], late=True, w=1) == ["{target}/1", "{{target}}", "{w}"]
    assert put_in("{target}", late=True, target="a factor wins") == "a factor wins"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{x}", "unknown factor or parameter {x}; for the text itself, write {{x}}"),
        ("a {sise} b", "unknown factor or parameter {sise}; did you mean 'size'?"),
        ("{target}", "{target} is known only while a trial runs"),
        ("{mode.direkt}", "which has no key 'direkt'; did you mean 'direct'?"),
        ("{size.direct}", '{size.direct}: size is "1M" here, which is not a table'),
        ("a{mode}", "{mode} is a table here: it can't be put into a longer text"),
        ("a{list}", "{list} is a list here"),
    ],
)
def test_what_can_not_be_put_in_is_told(text: str, says: str) -> None:
    made = substitution(size="1M", mode={"direct": 1}, list=[1])
    made.apply({"key": text}, ("top",))
    ((path, message),) = made.problems
    assert says in message
    assert path == ("top", "key")


def test_every_part_knows_where_it_was_written_and_what_was_put_in_is_remembered() -> None:
    made = substitution(fs=[{"layer": "mkfs", "type": "{kind}"}, {"layer": "mount"}], kind="xfs", one={"a": {"b": 1}})
    tree = made.apply([{"layer": "loop"}, "{fs}", {"x": "{one.a}"}], ("stack",))
    assert tree == [{"layer": "loop"}, {"layer": "mkfs", "type": "xfs"}, {"layer": "mount"}, {"x": {"b": 1}}]
    fs = ("factors", "fs", "level")
    assert made.origin_of(("stack", 0, "layer")) == ("stack", 0, "layer")
    assert made.origin_of(("stack", 1, "layer")) == (*fs, 0, "layer")
    assert made.origin_of(("stack", 1, "type")) == ("factors", "kind", "level")
    assert made.origin_of(("stack", 2, "new")) == (*fs, 1, "new")
    assert made.origin_of(("stack", 3, "x", "b")) == ("factors", "one", "level", "a", "b")
    assert made.origin_of(("stack", 3)) == ("stack", 2)
    made = substitution(a=1, b={"x": 2}, c="{a}", d=4)
    made.apply(["{b.x}", "-{c}-"], ("top",))
    assert made.used == {"a", "b", "c"}


@given(st.lists(st.sampled_from(["{w}", "plain", "{list}"]), max_size=6))
def test_elements_after_a_spliced_list_keep_their_origin(items: list[str]) -> None:
    made = substitution(w=1, list=[7, 8, 9])
    result = made.apply(items, ("top",))
    place = 0
    for index, item in enumerate(items):
        count = 3 if item == "{list}" else 1
        for offset in range(count):
            origin = made.origin_of(("top", place))
            written = {"plain": ("top", index), "{w}": ("factors", "w", "level")}
            assert origin == written.get(item, ("factors", "list", "level", offset))
            place += 1
    assert place == len(result)


@given(st.text(max_size=30))
def test_any_text_is_taken(text: str) -> None:
    result = put_in(text, late=True, a=1)
    if not re.search(r"[{}]", text):
        assert result == text
