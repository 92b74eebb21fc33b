from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.study.toml_text import Path, line_of, positions


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
