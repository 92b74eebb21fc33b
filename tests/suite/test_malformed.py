"""A runfile that is wrong is refused with its file and line at once, before anything of a guest is touched."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from storlab.run.suite import suite_run
from study.program import call

_WORDS = ("acl", "pool", "scrub", "zvol_misc", "send-recv", "ünicode")
_OPTIONS = ("tests", "pre", "post", "user", "timeout", "tags", "failsafe", "pre_user", "post_user", "quiet")
_NO_LISTS = (
    "['a'",
    "('a')",
    "a, b",
    "'a'",
    "[1]",
    "['a', None]",
    "{'a': 'b'}",
    "[x for x in 'ab']",
    "[''] ",
    "['a\\0']",
)
_NO_TIMES = ("soon", "-1", "1.5", "60s", "1e3", "99999999999", "0x10", "[60]")


def sound(rng: random.Random) -> list[str]:
    """Lines of a runfile that nothing is wrong with."""
    lines = ["[DEFAULT]", "timeout = 60", "tags = ['all']", "# a comment", ""]
    for number in range(rng.randint(1, 4)):
        lines += [f"[tests/{rng.choice(_WORDS)}{number}]", f"tests = ['{rng.choice(_WORDS)}', 'b',", "    'c']"]
        lines += rng.sample(
            ["user = root", "pre = setup", "post =", "quiet = False", "pre_user = root"], rng.randint(0, 4)
        )
    return lines


def _misspelt(rng: random.Random) -> str:
    word = rng.choice(_OPTIONS)
    at = rng.randrange(len(word))
    return word[:at] + rng.choice("xyzq") + word[at + rng.randint(0, 1) :]


Mistake = Callable[[random.Random], str]
_APPENDED: dict[str, Mistake] = {  # a section with this in it can't be read
    "a list that is none": lambda rng: f"[last]\ntests = {rng.choice(_NO_LISTS)}",
    "tags that are no list": lambda rng: f"[last]\ntests = ['a']\ntags = {rng.choice(_NO_LISTS)}",
    "a time that is none": lambda rng: f"[last]\ntests = ['a']\ntimeout = {rng.choice(_NO_TIMES)}",
    "neither yes nor no": lambda rng: f"[last]\ntests = ['a']\nquiet = {rng.choice(('maybe', '2', 'nope', '[]'))}",
    "an unknown option": lambda rng: f"[last]\ntests = ['a']\n{_misspelt(rng)} = a",
    "an option twice": lambda rng: f"[last]\ntests = ['a']\nuser = root\n{rng.choice(('user', 'USER'))} = root",
    "a section twice": lambda rng: "[last]\ntests = ['a']\n[last]\ntests = ['b']",
    "no option at all": lambda rng: f"[last]\ntests = ['a']\n{rng.choice(_WORDS)}",
    "a section without end": lambda rng: f"[last]\ntests = ['a']\n[{rng.choice(_WORDS)}",
    "a line that never ends": lambda rng: f"[last]\ntests = ['{'a' * 9000}']",
}
_PREPENDED: dict[str, Mistake] = {
    "no section": lambda rng: f"{rng.choice(_OPTIONS)} = x",
    "another format": lambda rng: rng.choice(('{"tests": []}', "<suite>", "tests:\n  - a", "#!/bin/sh\necho")),
}


@pytest.mark.parametrize("kind", [*_APPENDED, *_PREPENDED, "bytes"])
def test_a_malformed_runfile_is_one_message_with_its_file_and_line_and_status_2(kind: str, tmp_path: Path) -> None:
    """Over all kinds of mistakes, 208 runfiles."""
    for seed in range(16):
        rng = random.Random(f"{kind} {seed}")
        lines = sound(rng)
        if kind == "bytes":
            data = "\n".join(lines).encode()
            at = rng.randrange(len(data))
            data = data[:at] + rng.choice((b"\xff", b"\xc3(", b"\0", b"\x80")) + data[at:]
        elif kind in _APPENDED:
            data = "\n".join([*lines, _APPENDED[kind](rng), ""]).encode()
        else:
            data = "\n".join([_PREPENDED[kind](rng), *lines, ""]).encode()
        runfile = tmp_path / f"{seed}.run"
        runfile.write_bytes(data)
        with mock.patch.object(suite_run, "open_session", side_effect=AssertionError("a guest was wanted")):
            ran = call("suite", rng.choice(("run", "list")), str(runfile))
        assert ran.status == 2 and ran.output == "", (data, ran)
        assert re.fullmatch(rf"storlab: {re.escape(str(runfile))}:\d+: .+\n", ran.message), (data, ran)


def test_a_misspelt_option_is_told_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "x.run").write_text("[tests/a]\ntests = ['b']\ntimeuot = 5\n")
    ran = call("suite", "run", str(tmp_path / "x.run"))
    assert ran.message == (
        f"storlab: {tmp_path}/x.run:3: unknown option 'timeuot' of [tests/a]; did you mean 'timeout'?\n"
    )


def test_of_several_runfiles_each_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("[tests/a]\ntests = ['b']\n")
    (tmp_path / "b.run").write_text("[tests/a]\ntests = ['b'\n")
    ran = call("suite", "run", "zts-sanity", str(tmp_path / "a.run"), str(tmp_path / "b.run"))
    assert ran.status == 2 and f"{tmp_path}/b.run:2: [tests/a] tests: it must be a list" in ran.message
