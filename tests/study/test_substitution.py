"""Words that are put into studies, where each part of the result was written, and on which line of the TOML."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.study.substitution import Outgrown, Substitution, Word
from storlab.study.toml_text import Path, line_of, positions

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


def paths_of(tree: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from paths_of(value, (*path, key))


def marks_of(text: str) -> dict[Any, int]:
    """Integers that are values, each unique → the line that each stands on."""
    lines = text.split("\n")
    return {int(word): number for number, line in enumerate(lines, 1) for word in line.split() if word.isdigit()}


def value_at(tree: Any, path: Path) -> Any:
    for part in path:
        tree = tree[part]
    return tree


BARE = st.from_regex(r"[A-Za-z_-][A-Za-z0-9_-]{0,3}", fullmatch=True)
QUOTED = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """TOML with every way of writing keys; each scalar is a number of its own, alone between blanks."""
    count = iter(range(1000, 10**6))

    def number() -> str:
        return f" {next(count)} "

    filler = st.sampled_from(["", "# a = 1\n", "\n", "  # [x]\n"])

    def key() -> str:
        def part() -> str:
            if draw(st.booleans()):
                return draw(BARE)
            text = draw(QUOTED)
            return f"'{text}'" if "'" not in text and draw(st.booleans()) else f'"{escaped(text)}"'

        return draw(st.sampled_from([".", " . "])).join(part() for _ in range(draw(st.integers(1, 2))))

    def value(depth: int) -> str:
        kind = draw(st.integers(0, 5 if depth < 3 else 1))
        if kind == 2:
            gap = st.sampled_from(["", "\n", " # note, ] \n"])
            items = [f"{draw(gap)}{value(depth + 1)}{draw(gap)}" for _ in range(draw(st.integers(0, 3)))]
            return f"[{','.join(items)}{draw(gap)}]"
        if kind == 3:
            names = draw(st.lists(BARE, unique=True, max_size=3))
            return "{ " + ", ".join(f"{name} = {value(depth + 1)}" for name in names) + " }"
        if kind == 4:
            return draw(st.sampled_from(['"""a\n[x]\nb = 1"""', "'''\n\n'''", '"# no"', "true"]))
        return number()

    parts = []
    for _ in range(draw(st.integers(0, 3))):
        parts.append(f"{draw(filler)}{key()} = {value(0)}\n")
    for _ in range(draw(st.integers(0, 4))):
        header = key()
        parts.append(f"{draw(filler)}[[{header}]]\n" if draw(st.booleans()) else f"{draw(filler)}[{header}]\n")
        for _ in range(draw(st.integers(0, 3))):
            parts.append(f"{draw(filler)}{key()} = {value(0)}\n")
    return "".join(parts)


def escaped(text: str) -> str:
    return "".join(f"\\U{ord(sign):08x}" for sign in text)


@settings(max_examples=400, deadline=None)
@given(documents())
def test_every_key_and_element_is_found_at_its_line(text: str) -> None:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a key twice, most often
    found = positions(text)
    marks = marks_of(text)
    for path in paths_of(tree):
        assert path in found, path
        value = value_at(tree, path)
        if isinstance(value, int) and value >= 1000:
            # A key stands on the line where it begins, an element where its value does.
            assert found[path] <= marks[value]
            if isinstance(path[-1], int):
                assert found[path] == marks[value]


EXAMPLES = {
    "a = 1\nb.c = 2\n": "a 1, b 2, b/c 2",
    '\'c"d\'."e.f" = 2\n': 'c"d/e.f 1',
    "# x\n\n[a]\n# y\nb = 1 # z\n[a.c]\nd = 2\n": "a 3, a/b 5, a/c 6, a/c/d 7",
    "a = [\n  1, # one\n  # none\n  [2,\n   3],\n]\n": "a 1, a/0 2, a/1 4, a/1/0 4, a/1/1 5",
    "a = [\n{ b = 1 },\n{ b = { c.d = 2 } },\n]": "a/0/b 2, a/1/b/c 3, a/1/b/c/d 3",
    'a = """\nb = 1\n[c]\n"""\nd = 2\n': "a 1, d 5",
    "[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3\n": "a 1, a/0 1, a/0/b 2, a/1 3, a/1/b 4, a/1/c 5, a/1/c/d 6",
    "[[a]]\n[[a.b]]\nc = 1\n[[a.b]]\n[[a]]\n[[a.b]]\nc = 2\n": "a/0/b/0/c 3, a/0/b/1 4, a/1 5, a/1/b/0/c 7",
    "[a]\r\nb = 1\r\nc = 2\r\n": "a 1, a/b 2, a/c 3",
    '[a . "b" . c]\nd = 1': "a/b/c 1, a/b/c/d 2",
}
"""A text, and the lines of keys and elements."""


@pytest.mark.parametrize("text", EXAMPLES)
def test_keys_stand_where_they_are_written(text: str) -> None:
    found = positions(text)
    for place, line in (each.split(" ") for each in EXAMPLES[text].split(", ")):
        path: Path = tuple(int(part) if part.isdigit() else part for part in place.split("/"))
        assert found.get(path) == int(line), place
    assert set(paths_of(tomllib.loads(text))) <= set(found)


def test_a_key_that_is_missing_stands_where_it_would_be() -> None:
    lines = positions("[a]\nb = { c = 1 }\n")
    assert line_of(("a", "b", "x", 3), lines) == 2
    assert line_of(("a", "y"), lines) == 1
    assert line_of(("z",), lines) is None
    assert line_of((), lines) is None
