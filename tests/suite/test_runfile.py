"""Runfiles: what they mean, in which order, and what is said of one that is wrong before a guest is touched."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.run.suite import suite_run
from storlab.suite.installed import FIND, Installed, parse_find
from storlab.suite.model import Script
from storlab.suite.runfile import RunfileError, unique_folders
from study.program import call
from suite.samples import FILES, HERE, INSTALLED, RUNFILE, sayings, suite_of


def test_groups_come_in_the_order_of_their_names_after_single_tests_and_later_runfiles_add_to_them() -> None:
    suite = suite_of(RUNFILE + "[tests/disk/write]\npre =\npost =\n")
    assert [group.name for group in suite.groups] == [
        "tests/disk/write", "tests/acl:Linux", "tests/disk", "tests/pool",
    ]  # fmt: skip
    assert suite.size == 6 and suite.absent == () and not suite.quiet
    suite = suite_of(RUNFILE, "[DEFAULT]\ntimeout = 7\n[tests/pool]\ntests = ['rename']\n")
    pool = suite.groups[-1]
    assert [test.path for test in pool.tests] == [f"{HERE}/tests/pool/rename"] and pool.timeout == 7
    assert suite_of(RUNFILE).absent == () and all(INSTALLED.program(file) for file in FILES)


def test_a_group_inherits_the_defaults_unless_a_value_is_empty_and_keeps_the_order_of_its_tests() -> None:
    group = next(group for group in suite_of(RUNFILE).groups if group.name == "tests/pool")
    assert [test.path for test in group.tests] == [f"{HERE}/tests/pool/{n}" for n in ("create", "destroy", "rename")]
    assert group.tests[0].file == f"{HERE}/tests/pool/create.ksh" and group.tests[0].user == "root"
    assert group.pre == Script(f"{HERE}/tests/pool/setup", "root", f"{HERE}/tests/pool/setup.ksh", 3)
    assert group.failsafe == Script(f"{HERE}/callbacks/failsafe", "root", f"{HERE}/callbacks/failsafe.ksh", 9)
    assert (group.timeout, group.tags, group.identifier, group.folder) == (300, ("all", "pool"), "", "pool")
    acl, disk = suite_of(RUNFILE).groups[:2]
    assert (acl.identifier, acl.timeout, acl.failsafe, acl.tests[0].user) == ("Linux", None, None, "")
    assert (disk.pre, disk.post) == (None, None)


def test_what_is_absent_is_named_with_file_and_line_and_only_a_group_without_its_set_up_is_left_out_whole() -> None:
    text = RUNFILE.replace("'create',", "'gone', 'plain',").replace("[tests/disk]", "[tests/disk]\nuser = bob")
    suite = suite_of(text)
    assert [str(each) for each in suite.absent] == [
        f"1.run:14: test gone is left out: there is no gone or gone.ksh or gone.sh in {HERE}/tests/pool",
        f"1.run:14: test plain is left out: {HERE}/tests/pool/plain.ksh is not an executable file",
        "1.run:26: [tests/disk] is left out: user: unknown user 'bob'",
    ]
    assert suite.size == 3
    suite = suite_of(RUNFILE.replace("tags = ['all', 'pool']", "pre = ../acl/setup"))
    assert [each.tests for each in suite.absent] == [3]
    assert "lies in another directory" in suite.absent[0].what
    suite = suite_of(RUNFILE.replace("pre =\n", "pre = prepare\n"))
    assert "pre: there is no prepare or prepare.ksh or prepare.sh" in suite.absent[0].what


@pytest.mark.parametrize(
    ("says", "text"),
    [
        *sayings("mistakes-in-runfiles.txt"),
        ("1.run:2: a line may have 8192 characters, and this one has 70002", "[a]\nx" + " " * 70_000 + "y\n"),
    ],
)
def test_what_can_not_be_read_is_refused_with_file_and_line(text: str, says: str) -> None:
    with pytest.raises(RunfileError, match=r".") as refused:
        suite_of(text)
    assert str(refused.value).startswith(says)


def test_folders_of_groups_are_the_shortest_ends_that_differ_and_options_without_meaning_are_noted() -> None:
    suite = suite_of("[DEFAULT]\noutputdir = /x\nuntil = now\n" + RUNFILE.replace("[DEFAULT]\n", ""))
    assert [note.partition(": ")[0] for note in suite.notes] == ["1.run:2", "1.run:3"]
    assert unique_folders(["a/x", "b/y"]) == {"a/x": "x", "b/y": "y"}
    assert unique_folders(["a/x", "b/x", "c"]) == {"a/x": "a/x", "b/x": "b/x", "c": "c"}
    assert unique_folders(["../..", ".."]) == {"../..": "_", "..": "_"}


def test_a_machine_is_what_find_and_passwd_say_of_it() -> None:
    said = b"f755 /a/b c.ksh\0f644 /a/d\0d755 /a\0l777 /a/e\0f7\xff /a/f\0f755 /\xff\0"
    found = parse_find(said, "root:x:0:0::/root:/bin/sh\n\nnonsense\nbob:x:1:\n")
    assert found.executables == {"/a/b c.ksh"} and found.users == {"root", "bob"}
    assert found.others == {"/a/d", "/a", "/a/e"}
    assert FIND[1].endswith(r"\0")


_NAMES = st.text("abc", min_size=1, max_size=3)


@given(st.dictionaries(st.lists(_NAMES, min_size=1, max_size=4).map("/".join), st.sets(_NAMES, min_size=1), max_size=5))
def test_every_test_of_every_section_is_run_once_or_named(groups: dict[str, set[str]]) -> None:
    text = "".join(f"[{name}]\ntests = {sorted(tests)}\n" for name, tests in groups.items())
    there = {f"{HERE}/{name}/{test}" for name, tests in groups.items() for test in sorted(tests)[1:]}
    suite = suite_of(text, installed=Installed(frozenset(there))) if groups else suite_of("")
    assert suite.size + sum(each.tests for each in suite.absent) == sum(map(len, groups.values()))
    assert {test.path for group in suite.groups for test in group.tests} == there
    names = [group.name for group in suite.groups]
    assert names == sorted(names)
    folders = [group.folder for group in suite.groups]
    assert len(set(folders)) == len(folders)


_WORDS = ("acl", "pool", "scrub", "zvol_misc", "send-recv", "ünicode")
_OPTIONS = ("tests", "pre", "post", "user", "timeout", "tags", "failsafe", "pre_user", "post_user", "quiet")
_NO_LISTS = (
    "['a'", "('a')", "a, b", "'a'", "[1]", "['a', None]", "{'a': 'b'}", "[x for x in 'ab']", "[''] ", "['a\\0']",
)  # fmt: skip
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


def test_of_several_runfiles_each_is_looked_at_and_a_misspelt_option_is_told_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("[tests/a]\ntests = ['b']\n")
    (tmp_path / "b.run").write_text("[tests/a]\ntests = ['b'\n")
    ran = call("suite", "run", "zts-sanity", str(tmp_path / "a.run"), str(tmp_path / "b.run"))
    assert ran.status == 2 and f"{tmp_path}/b.run:2: [tests/a] tests: it must be a list" in ran.message
    (tmp_path / "x.run").write_text("[tests/a]\ntests = ['b']\ntimeuot = 5\n")
    unknown = f"{tmp_path}/x.run:3: unknown option 'timeuot' of [tests/a]; did you mean 'timeout'?"
    assert call("suite", "run", str(tmp_path / "x.run")).message == f"storlab: {unknown}\n"
