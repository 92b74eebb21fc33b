"""Runfiles: what they mean, in which order, and what is said of one that is wrong before a guest is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.suites.groups import FIND, Installed, parse_find, unique_folders
from storlab.suites.model import Script
from storlab.suites.runfile import RunfileError
from study.program import call
from suite.samples import FILES, HERE, INSTALLED, RUNFILE, sayings, suite_of


def test_groups_come_in_the_order_of_their_names_after_single_tests_and_later_runfiles_add_to_them() -> None:
    suite = suite_of(RUNFILE + "[tests/disk/write]\npre =\npost =\n")
    names = ["tests/disk/write", "tests/acl:Linux", "tests/disk", "tests/pool"]
    assert [group.name for group in suite.groups] == names
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
    assert found.others == {"/a/d", "/a", "/a/e"} and FIND[1].endswith(r"\0")


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


def test_of_several_runfiles_each_is_looked_at_and_a_misspelt_option_is_told_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("[tests/a]\ntests = ['b']\n")
    (tmp_path / "b.run").write_text("[tests/a]\ntests = ['b'\n")
    ran = call("suite", "run", "zts-sanity", str(tmp_path / "a.run"), str(tmp_path / "b.run"))
    assert ran.status == 2 and f"{tmp_path}/b.run:2: [tests/a] tests: it must be a list" in ran.message
    (tmp_path / "x.run").write_text("[tests/a]\ntests = ['b']\ntimeuot = 5\n")
    unknown = f"{tmp_path}/x.run:3: unknown option 'timeuot' of [tests/a]; did you mean 'timeout'?"
    (tmp_path / "y.run").write_bytes(b"[tests/a]\ntests = ['b\xff']\n")
    for name, says in (("x", unknown), ("y", f"{tmp_path}/y.run:2: this is no UTF-8, so it is no runfile")):
        for command in ("run", "list"):
            ran = call("suite", command, str(tmp_path / f"{name}.run"))
            assert (ran.status, ran.output, ran.message) == (2, "", f"storlab: {says}\n")
