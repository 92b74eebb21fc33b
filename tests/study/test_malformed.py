"""Studies that can't be, by hand and by chance: refused with a message that says where and what."""

import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storlab.base.errors import StudyError, UserError
from storlab.study.study import Study, parse_study, shipped_studies

from . import mistakes
from .mistakes import Mistake
from .program import PROGRAM, Ran, call

EVERY = [
    *(*mistakes.TOML, *mistakes.KEYS, *mistakes.FACTORS, *mistakes.CLAIMS),
    *(*mistakes.STACKS, *mistakes.CHAINS),
    *(*mistakes.WORKLOADS, *mistakes.COMMANDS, *mistakes.METRICS),
    *(*mistakes.CRASH, *mistakes.GUESTS, *mistakes.NETWORKS),
]
AS_PROCESSES = EVERY[:: len(EVERY) // 3][:3]


pytestmark = pytest.mark.usefixtures("here")


def check(mistake: Mistake, ran: Ran) -> None:
    assert ran.status == 2, ran.message
    assert ran.output == "" and "Traceback" not in ran.message
    where = f"study.toml: line {mistake.line}: "
    assert len(ran.message.splitlines()) == 1, ran.message
    assert ran.message.startswith(where), f"{ran.message}wanted: {where}{mistake.says}"
    assert mistake.says in ran.message


def test_there_are_mistakes_enough() -> None:
    assert len(EVERY) >= 250
    assert len({mistake.text for mistake in EVERY}) == len(EVERY)


@pytest.mark.parametrize("mistake", EVERY, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_once_with_its_line(mistake: Mistake, here: Path) -> None:
    Path("study.toml").write_bytes(mistake.text.encode())
    check(mistake, call("plan", "study.toml"))
    assert [path.name for path in here.iterdir()] == ["study.toml"]


def test_the_installed_program_says_the_same(here: Path) -> None:
    def run(mistake: Mistake) -> Ran:
        home = here / str(EVERY.index(mistake))
        home.mkdir()
        (home / "study.toml").write_bytes(mistake.text.encode())
        ran = subprocess.run([PROGRAM, "plan", "study.toml"], capture_output=True, cwd=home, timeout=120)
        assert [path.name for path in home.iterdir()] == ["study.toml"]
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mistake, ran in zip(AS_PROCESSES, pool.map(run, AS_PROCESSES), strict=True):
            check(mistake, ran)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_run_and_plan_refuse_alike(command: str, here: Path) -> None:
    mistake = mistakes.STACKS[0]
    Path("study.toml").write_bytes(mistake.text.encode())
    check(mistake, call(command, "study.toml"))
    assert [path.name for path in here.iterdir()] == ["study.toml"]


SOUND = 'title = "x"\nstack = [{ layer = "directory" }]\n[workload.load]\nfio = { rw = "write", size = "1M" }\n'

FILES: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "study.toml: title: this key is missing\nstudy.toml: workload: this key is missing\n"),
    "blanks alone": (b"\n \n", "study.toml: title: this key is missing\nstudy.toml: workload: this key is missing\n"),
    "a study without a stack": (SOUND.replace("stack", "#stack").encode(), "study.toml: stack: a stack is missing"),
    "a load with nothing to run on": (
        SOUND.replace("stack", "#stack").encode() + b'[nodes.vm]\nkind = "vm"\n',
        "study.toml: line 3: workload.load: there is nothing on the nodes vm for this load to run on: write a stack",
    ),
    "a study without a title": (SOUND.replace("title", "#title").encode(), "study.toml: title: this key is missing"),
    "Latin-1": (b'title = "x"\ndescription = "\xe4"\n', "study.toml: line 2: this is not UTF-8 text"),
    "UTF-16": (SOUND.encode("utf-16"), "study.toml: line 1: this is UTF-16; save it as UTF-8"),
    "half a character": (SOUND.encode() + b"# \xe2\x82", "study.toml: line 5: this is not UTF-8 text"),
    "a program": (Path(sys.executable).resolve().read_bytes()[:100_000], "study.toml: line"),
    "more than a study": (
        b"#" * (5 * 1024 * 1024),
        "storlab: cannot read study.toml: it is longer than 4 MiB; is it the right file?",
    ),
    "lists without end": (b"x = " + b"[" * 100_000, "study.toml: this is nested too deeply"),
    "deep lists": (b"stack = " + b"[" * 400 + b"]" * 400 + b"\n" + SOUND.encode(), "study.toml: "),
    "deep tables": ((SOUND + "[workload.load.fio." + "a." * 3000 + "b]\n").encode(), "study.toml: "),
    "a million blanks before a word": (
        b" " * 1_000_000 + b"abc~",
        "study.toml: line 1: this is not TOML: expected '='",
    ),
    "a number of many digits": (f"x = {'9' * 5000}\n{SOUND}".encode(), "study.toml: this is not TOML: a number"),
    "ten thousand levels and one": (
        f"{SOUND}[factors.a]\nlevels = {list(range(10_001))}".encode(),
        "study.toml: line 5: factors: these factors make 10001 cells, more than 10000",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_can_be_no_study_is_refused(name: str, here: Path) -> None:
    data, says = FILES[name]
    Path("study.toml").write_bytes(data)
    ran = call("plan", "study.toml")
    assert ran.status == 2
    assert ran.message.startswith(says), ran.message
    assert "Traceback" not in ran.message and len(ran.message.splitlines()) == max(says.count("\n"), 1)
    assert [path.name for path in here.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_do_not_matter(ending: str, mark: str) -> None:
    text = mark + SOUND.replace("directory", "direktory").replace("\n", ending)
    Path("study.toml").write_bytes(text.encode())
    assert call("plan", "study.toml").message.startswith("study.toml: line 2: stack[0].layer: unknown layer")


PLACES = {
    "missing.toml": "storlab: unknown study 'missing.toml': neither a file nor one of",
    "quik": "did you mean 'quick'?", ".": "storlab: . is a folder; name a study file in it",
    "study.toml/x": "unknown study", "x" * 5000: "unknown study",
    "/proc/self/mem": "storlab: cannot read /proc/self/mem: ", "loop": "unknown study",
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES, ids=lambda name: name[:20])
def test_a_path_that_leads_to_no_study_is_refused(name: str) -> None:
    Path("loop").symlink_to("loop")
    Path("study.toml").touch()
    ran = call("plan", name)
    assert ran.status == 2 and PLACES[name] in ran.message and ran.message.count("\n") == 1


def test_a_file_that_may_not_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("study.toml").write_text(SOUND)

    opened = os.open

    def refuse(path: str | Path, *rest: int, **others: int) -> int:
        if Path(path).name == "study.toml":
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **others)

    monkeypatch.setattr(os, "open", refuse)  # root, who may run these tests, may read everything
    ran = call("plan", "study.toml")
    assert (ran.status, ran.message) == (2, "storlab: cannot read study.toml: Permission denied\n")


def test_several_mistakes_are_told_together_in_the_order_of_their_lines() -> None:
    text = (
        SOUND.replace("rw =", "rv =").replace("directory", "direktory") + '[probes]\nstall = {}\n[repeat]\nmin = "1"\n'
    )
    Path("study.toml").write_text(text)
    ran = call("plan", "study.toml")
    assert ran.message == 'study.toml: line 8: repeat.min: "1" should be a whole number\n'
    Path("study.toml").write_text(text.replace('"1"', "1"))
    lines = [line.split(":")[1] for line in call("plan", "study.toml").message.splitlines()]
    assert lines == [" line 2", " line 4", " line 6"]


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
        assert len(told) < 20_000 and len(told.split("\n")) == len(error.problems)
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
    assert any(outcomes) and None in outcomes
