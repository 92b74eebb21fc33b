"""What a stranger's study or suite can't do by files and patterns: get others' files into a run, or go on for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attacks.odd_files import bounded
from laboratory import Laboratory
from laboratory.samples import sample
from laboratory.studies import directory
from storlab.base.errors import StudyError
from storlab.base.reading import opened_below
from storlab.run.permissions import Permissions
from storlab.study.study import load_study
from storlab.suites.run.own_files import folder_of, read_suite_file
from study.program import call

SECRET = "root:$6$salt:1::::::\n[global]\n[job]\nrw=read\nsize=1m\n"
FIO = directory('fio = { job_file = "NAME" }')
PGBENCH = """
stack = [{ layer = "directory" }, { layer = "postgresql" }]
[workload.load]
pgbench = { script = "NAME" }
"""
STUDIES = {"job_file": FIO, "script": PGBENCH}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder as somebody shares it, beside one with a secret."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "shadow").write_text(SECRET)
    folder = tmp_path / "shared"
    (folder / "jobs").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret" / "shadow")
    (folder / "folder").symlink_to(tmp_path / "secret")
    (folder / "hard").symlink_to("jobs/ok")
    (folder / "jobs" / "ok").write_text("[job]\nrw=read\nsize=1m\n")
    (folder / "jobs" / "includes").write_text("include ../link\n[job]\n")
    (folder / "jobs" / "further").write_text("include ../../secret/shadow\n[job]\n")
    os.mkfifo(folder / "pipe")
    return folder


def refusal(folder: Path, key: str, name: str) -> str:
    head = 'schema = 1\ntitle = "A"\n'
    (folder / "study.toml").write_text(head + STUDIES[key].replace("NAME", name))
    with pytest.raises(StudyError) as refused:
        load_study(folder / "study.toml")
    return str(refused.value)


@pytest.mark.parametrize("key", STUDIES)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("{secret}", "it leads out of that file's folder"),
        ("../secret/shadow", "it leads out of that file's folder"),
        ("jobs/../../secret/shadow", "it leads out of that file's folder"),
        ("/proc/self/environ", "it leads out of that file's folder"),
        ("link", "a symbolic link is on the way"),
        ("folder/shadow", "a symbolic link is on the way"),
        ("hard", "a symbolic link is on the way"),
        ("pipe", "it is a pipe"),
        ("jobs", "Is a directory"),
    ],
)
def test_an_input_that_is_not_a_file_below_the_study_is_refused(theirs: Path, key: str, name: str, why: str) -> None:
    said = refusal(theirs, key, name.format(secret=theirs.parent / "secret" / "shadow"))
    assert why in said and "study.toml:" in said and "salt" not in said, said


@pytest.mark.parametrize(("name", "why"), [("jobs/includes", "link is on the way"), ("jobs/further", "leads out of")])
def test_what_a_job_file_includes_lies_below_the_study_too(theirs: Path, name: str, why: str) -> None:
    said = refusal(theirs, "job_file", name)
    assert why in said and "salt" not in said, said


def test_an_input_may_go_up_as_long_as_it_stays_below_the_study(theirs: Path) -> None:
    (theirs / "study.toml").write_text('schema = 1\ntitle = "A"\n' + FIO.replace("NAME", "jobs/../jobs/ok"))
    assert load_study(theirs / "study.toml").inputs == {"jobs/../jobs/ok": "[job]\nrw=read\nsize=1m\n"}


SUITE = """
{top}
[guests]
{guests}
[groups.g]
{group}
tests = ["t"]
"""


def suite(folder: Path, *, top: str = "", guests: str = "", group: str = "") -> str:
    """What is wrong with a suite file of this folder."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "bzImage").touch()
    name = str(folder / "suite.toml")
    with pytest.raises(StudyError) as refused:
        read_suite_file(SUITE.format(top=top, guests=guests, group=group), name)
    assert f"{name}:" in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("folder", ["/etc", "../secret", "tests/../..", "folder"])
def test_the_folder_of_a_suite_lies_below_the_suite_or_is_allowed(theirs: Path, folder: str) -> None:
    said = suite(theirs, top=f'folder = "{folder}"')
    wanted = f"read={(theirs / folder).resolve()}"
    assert "line 2: folder: " in said and f"--allow {wanted}" in said, said
    text, name = SUITE.format(top=f'folder = "{folder}"', guests="", group=""), str(theirs / "suite.toml")
    read = read_suite_file(text, name, permissions=Permissions(allowed=frozenset({wanted})))
    found = folder_of(read)
    assert found is not None and found.samefile(theirs / folder)


@pytest.mark.parametrize("folder", ["/etc", "../../secret", "a/../../b", ".."])
def test_the_folder_of_a_group_lies_below_that_of_the_suite(theirs: Path, folder: str) -> None:
    assert "leads out of the suite's folder" in suite(theirs, top='folder = "tests"', group=f'folder = "{folder}"')


@pytest.mark.parametrize("rootfs", ["/", "..", "folder", "link"])
def test_a_suite_packs_nothing_of_this_machine_into_its_guests_that_is_not_allowed(theirs: Path, rootfs: str) -> None:
    said = suite(theirs, guests=f'kernel = "bzImage"\nrootfs = "{rootfs}"')
    assert "guests.rootfs" in said and f"--allow read={(theirs / rootfs).resolve()}" in said, said
    assert "guests.kernel" not in said, said


def test_no_name_reaches_the_kernel_that_ends_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="null character"), opened_below(tmp_path, "a\0b"):
        pass


STUDY = sample(__file__, "cases/pattern.toml")


@pytest.mark.parametrize("regex", [r"(?:a|aa)+b(\d)", r"(?:a+)+(\d)$", r"(?:(?:a*)*)*(\d)\z", r"(?:.*a){20}b(\d)"])
def test_no_pattern_makes_a_run_or_its_report_go_on_for_ever(regex: str, lab: Laboratory) -> None:
    ended = lab.run(STUDY.replace("AAAA", "a" * 600).replace("REGEX", regex), timeout=60)
    assert ended.status == 3 and "matches nothing" in ended.stdout, ended
    with bounded():
        ran = call("report", str(lab.out))
        assert "matches nothing" in ran.output and "internal error" not in ran.message, ran


def test_an_output_that_is_longer_than_any_may_be_is_not_read_into_memory(lab: Laboratory) -> None:
    ended = lab.run(STUDY.replace("AAAA", "a1").replace("REGEX", r"a(\d)"), timeout=60)
    assert ended.status == 0, ended
    (stdout,) = lab.out.rglob("stdout")
    os.truncate(stdout, 2**31 - 1)  # sparse: it takes up nothing where it comes from
    with bounded():
        ran = call("report", str(lab.out))
    assert "longer than" in ran.output + ran.message and "internal error" not in ran.message, ran
