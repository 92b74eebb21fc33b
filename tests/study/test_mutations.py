"""The shipped study with something deleted, inserted or replaced is planned or refused: nothing else happens."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from storlab.errors import StudyError, UserError
from storlab.study.study import Study, parse_study, shipped_studies

QUICK = shipped_studies()["quick"].read_text()
LINES = QUICK.splitlines(keepends=True)
VALUES = re.compile(r'(?<=[=\[,:] )("[^"\n]*"|true|false|\d+|\[\]|\{\})|(?<=\[)"[^"\n]*"')
KEYS = re.compile(r"[\w.-]+(?= *=)|(?<=\[)[\w.]+(?=\])")
SIGNS = '={}[]",.\'#\\\n\t 0aé\0\u202e"""'
OTHERS = [
    *("0", "-1", "1e400", "nan", "-inf", "true", "9" * 40, "2024-01-31", "07:30:00"),
    *("[]", "{}", "[[]]", '["a", 1]', '{ layer = "loop" }', '[{ layer = "file" }]'),
    *('""', '"0"', '"-1k"', '"9999999P"', '"5%"', '"/dev/sda"', '"\\u0000"', '"\\n"', '"' + "x" * 5000 + '"'),
    *('"{fs}"', '"{load}"', '"{size}"', '"{x}"', '"{fs.type}"', '"}{"', '"{{fs}}"'),
]


def read(name: str) -> str:
    raise ValueError(f"{name}: there is none")


def planned_or_refused(text: str) -> Study | None:
    data = text.encode(errors="surrogateescape")
    try:
        return parse_study(data, "quick.toml", read)
    except StudyError as error:
        told = str(error)
        assert error.problems
        assert all(line.startswith("quick.toml: ") for line in told.splitlines()), told
        assert all(each.line is None or 1 <= each.line <= data.count(b"\n") + 1 for each in error.problems)
        assert len(told) < 20_000
        assert len(told.split("\n")) == len(error.problems)
        assert told.replace("\n", "").isprintable(), repr(told)
        return None
    except UserError as error:
        raise AssertionError(f"an error without the file's name: {error}") from error


def places(pattern: re.Pattern[str]) -> st.SearchStrategy[tuple[int, int]]:
    return st.sampled_from([match.span() for match in pattern.finditer(QUICK)])


def spliced(span: tuple[int, int], new: str) -> str:
    return QUICK[: span[0]] + new + QUICK[span[1] :]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(QUICK)), st.integers(0, 40), st.text(st.sampled_from(SIGNS), max_size=3))
def test_characters_deleted_and_inserted(start: int, length: int, new: str) -> None:
    planned_or_refused(spliced((start, start + length), new))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(range(len(LINES))), max_size=3), st.sampled_from(LINES), st.integers(0, len(LINES)))
def test_lines_deleted_doubled_and_moved(gone: list[int], line: str, to: int) -> None:
    kept = [each for number, each in enumerate(LINES) if number not in gone]
    planned_or_refused("".join([*kept[:to], line, *kept[to:]]))


@settings(max_examples=500, deadline=None)
@given(places(VALUES), st.sampled_from(OTHERS))
@example(next(VALUES.finditer(QUICK)).span(), "true")
def test_a_value_replaced(span: tuple[int, int], value: str) -> None:
    planned_or_refused(spliced(span, value))


@settings(max_examples=200, deadline=None)
@given(places(KEYS), st.sampled_from(["levels", "layer", "x", '""', '"a b"', "size.x", "on", "fio", "1", "stack"]))
def test_a_key_replaced(span: tuple[int, int], key: str) -> None:
    planned_or_refused(spliced(span, key))


def scalars() -> st.SearchStrategy[Any]:
    words = st.sampled_from(["{fs}", "{load}", "{size}", "fio", "loop", "ext4", "host", "decided", "1G", "5s", ""])
    return st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=5)


def toml(value: Any) -> str:
    match value:
        case None:
            return "2024-01-31"
        case bool():
            return str(value).lower()
        case str():
            return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0xD800 else "x" for c in value) + '"'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{toml(key)} = {toml(each)}' for key, each in value.items())} }}"
        case _:
            return str(value)


TREES = st.recursive(
    scalars(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["layer", "size", "fio", "a", "levels", "on", "where"]), inner, max_size=3)
    ),
    max_leaves=8,
)
TABLES = ["stack", "nodes", "workload", "probes", "trial", "repeat", "compare", "factors", "parameters"]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(TABLES), TREES)
def test_any_tree_in_any_place(key: str, tree: Any) -> None:
    sound = {
        "stack": '[{ layer = "directory" }]',
        "workload": '{ load = { fio = { rw = "write", size = "1M" } } }',
        "factors": '{ fs = { a = { layer = "directory" } }, load = ["x"] }',
        "parameters": '{ size = "1M" }',
    }
    chosen = {**sound, key: toml(tree)}
    planned_or_refused("\n".join(['title = "x"', *(f"{name} = {value}" for name, value in chosen.items())]))


def test_every_single_line_and_value_may_be_missing() -> None:
    outcomes = [planned_or_refused("".join(LINES[:number] + LINES[number + 1 :])) for number in range(len(LINES))]
    spans = (match.span() for match in itertools.chain(VALUES.finditer(QUICK), KEYS.finditer(QUICK)))
    outcomes += [planned_or_refused(spliced(span, "")) for span in spans]
    assert any(outcomes)
    assert None in outcomes


def test_shipped_studies_are_sound() -> None:
    for path in shipped_studies().values():
        assert parse_study(path.read_bytes(), path.name, lambda name: Path(name).read_text()).notes == ()
