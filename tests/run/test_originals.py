"""``storlab suite test-runner`` and ``zfs-tests`` beside the originals, which run in a guest of the same image.

The ZFS Test Suite itself runs unmodified by both runners: its group ``exec`` or, in `make zts-subset`, those that
``STORLAB_ZTS_GROUPS`` names with commas, or all of ``ALL``, by their tags.
"""

from __future__ import annotations

import os
import re
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory, opened
from laboratory.samples import sample
from run.test_suites import planted
from run.test_suites_here import HERE
from storlab.suites.model import Outcome, report_name
from storlab.suites.records.folder import SuiteRun, read_suite_run
from storlab.suites.zts_text import ResultLine, read_results

ALL = "devices,zvol_cli,btree,acl,delegate,events,zfs_snapshot,zfs_share,alloc_class,zpool_create,fault"  # cheap first
_ASKED = os.environ.get("STORLAB_ZTS_GROUPS", "")
GROUPS = (ALL if _ASKED == "all" else _ASKED or "exec").split(",")  # not wherever "all" stands: there is alloc_class
HOUR = 3600
LIMIT = len(GROUPS) * HOUR + 600 if _ASKED else 900  # s, for each of the two
pytestmark = [pytest.mark.needs("zfs"), pytest.mark.timeout(2 * LIMIT)]

RUNFILE = sample(__file__, "cases/planted.run")
SCRIPTS: dict[str, str] = tomllib.loads(sample(__file__, "cases/planted-scripts.toml"))
# The original's runner with its own runfiles, as a test of its own for each tag.
BY_TAG = """
cd "$TMPDIR"
env -i PATH="$PATH" HOME="$HOME" USER="$USER" DISKS="$DISKS" /usr/share/zfs/zfs-tests.sh -T {tag}
"""
_TIMES = (
    (re.compile(rb"(?m)^\d\d:\d\d:\d\d\.\d\d "), b"TIME "),
    (re.compile(rb"\[\d\d:\d\d\]"), b"[TIME]"),
    (re.compile(rb"Running Time:\t.*"), b"Running Time:"),
    (re.compile(rb"Log directory:\t.*"), b"Log directory:"),
    (re.compile(rb"constrained_path\.\w+"), b"constrained_path"),
    (re.compile(rb"\bvd[a-z]\b"), b"vdX"),  # guests with several CPUs find their disks in any order
)


@dataclass(frozen=True)
class Both:
    lab: Laboratory
    runner: Ended
    zfs_tests: Ended
    original: Path


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with opened(Laboratory(tmp_path_factory.mktemp("originals"))) as lab:
        own = planted(lab.folder / "own", SCRIPTS, RUNFILE).parent
        out = lab.folder / "results"
        runner = lab.storlab(
            "suite", "test-runner", "-c", own / "own.run", "-i", own, "-o", out / "runner", "--out", lab.folder / "one",
            timeout=300,
        )  # fmt: skip
        zfs_tests = lab.storlab(
            "suite", "zfs-tests", "-v", "-r", "sanity", "-T", "exec", "--outputdir", out / "zts", "--out",
            lab.folder / "two", timeout=300,
        )  # fmt: skip
        scripts = {  # what runs them, as tests of their own: their own tests lie at the same place as on this machine
            "tests/original/runner": sample(__file__, "cases/original-runner.sh", own=own),
            "tests/original/zfs_tests": sample(__file__, "cases/original-zfs-tests.sh"),
        }
        beside = planted(
            lab.folder / "beside", scripts, "[tests/original]\ntests = ['runner', 'zfs_tests']\ntimeout = 300"
        )
        planted(lab.folder / "beside" / "own", SCRIPTS, RUNFILE)
        ran = lab.storlab("suite", "run", beside, "--tests", beside.parent, "--out", lab.out, timeout=500)
        assert lab.out.exists(), str(ran)
        for attempt in read_suite_run(lab.out).results.values():
            with tarfile.open(lab.out / attempt.folder / "stdout") as archive:
                archive.extractall(lab.folder / "original" / attempt.path.rpartition("/")[2], filter="data")
        yield Both(lab, runner, zfs_tests, lab.folder / "original")


def without_times(data: bytes) -> bytes:
    for pattern, word in _TIMES:
        data = pattern.sub(word, data)
    return data


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): without_times(path.read_bytes()) if path.is_file() else b""
        for path in folder.rglob("*")
    }


def test_the_console_and_status_of_test_runner_are_the_originals_but_for_times(both: Both) -> None:
    original = both.original / "runner"
    assert without_times(both.runner.stdout.encode()) == without_times((original / "console").read_bytes())
    assert both.runner.status == int((original / "status").read_text()) == 1


def test_its_folders_and_files_are_the_originals_but_for_times(both: Both) -> None:
    (theirs,) = (both.original / "runner" / "original").glob("2*")
    ours = both.lab.folder / "results" / "runner" / "current"
    assert files(ours.resolve()) == files(theirs)
    assert len(files(theirs)) > 20 and "planted:Linux/hangs/failsafe/stdout" in files(theirs)


def test_what_zfs_tests_prints_and_writes_are_the_originals_but_for_times(both: Both) -> None:
    original = both.original / "zfs_tests"
    theirs, ours = without_times((original / "console").read_bytes()), without_times(both.zfs_tests.stdout.encode())
    assert ours == theirs, both.zfs_tests.stderr
    assert both.zfs_tests.status == int((original / "status").read_text()) == 0
    results = both.lab.folder / "results" / "zts" / "current" / "results"
    assert without_times(results.read_bytes()) == without_times((original / "results").read_bytes())


def test_a_dry_run_and_a_template_run_nothing(both: Both) -> None:
    lab, own = both.lab, both.lab.folder / "own"
    written = lab.folder / "template.run"
    words = ("-g", "-w", written, "-i", own, own / "tests" / "odd", "--here", HERE)
    ended = lab.storlab("suite", "test-runner", *words, timeout=120)
    assert ended.status == 0 and f"[{own}/tests/odd]\ntests = ['prints.sh']\n" in written.read_text(), ended


def test_tests_by_their_paths_run_so_many_times_with_their_names_in_the_kernel_s_log(both: Both) -> None:
    lab = both.lab
    scripts = {
        "tests/flips": "n=$(cat /tmp/n || echo 0); echo $((n + 1)) > /tmp/n; echo run $n; test $n -ne 1",
        "tests/log": "dmesg | grep -c 'ZTS run .*/tests/log.sh'",
    }
    paths = sorted((planted(lab.folder / "paths", scripts, "").parent / "tests").iterdir())
    out = lab.folder / "iterations"
    ended = lab.storlab(
        "suite", "test-runner", "-I", "2", "-K", "-D", "-u", "root", *paths, "-o", out, "--out", lab.folder / "three",
        timeout=300,
    )  # fmt: skip
    outcomes = [line.rpartition("[")[2][:4] for line in ended.stdout.splitlines() if line.startswith("Test: ")]
    assert (ended.status, outcomes) == (1, ["PASS", "PASS", "FAIL", "PASS"]), ended
    assert [line for line in ended.stderr.splitlines() if line[-1:].isdecimal()] == ["run 0", "1", "run 1", "2"]
    assert (out / "current" / "log.sh" / "stdout").read_text() == "2\n"


@dataclass(frozen=True)
class Scripts:
    """What both runners said of each script of the groups, by identifier and path; the last of several."""

    run: SuiteRun
    ours: dict[tuple[str, str], ResultLine]
    theirs: dict[tuple[str, str], ResultLine]


def by_script(text: str) -> dict[tuple[str, str], ResultLine]:
    return {(each.identifier, each.path): each for each in read_results(text.splitlines())}


@pytest.fixture(scope="module")
def scripts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    if not _ASKED:
        both: Both = request.getfixturevalue("both")
        theirs = (both.original / "zfs_tests" / "console").read_text(errors="replace")
        yield Scripts(read_suite_run(both.lab.folder / "two"), by_script(both.zfs_tests.stdout), by_script(theirs))
        return
    with opened(Laboratory(tmp_path_factory.mktemp("subset"))) as lab:
        yield by_both_runners(lab)


def by_both_runners(lab: Laboratory) -> Scripts:
    two = ("--guests", "2", "--allow-missing", "--out")
    said = lab.storlab("suite", "run", "zts", "-T", ",".join(GROUPS), *two, lab.out, timeout=LIMIT)
    assert said.status in (0, 3), said
    runfile = planted(
        lab.folder / "own",
        {f"tests/{tag}/original": BY_TAG.format(tag=tag) for tag in GROUPS},
        "\n".join(f"[tests/{tag}]\ntests = ['original']\ntimeout = {HOUR}\npre =\npost =\n" for tag in GROUPS),
    )
    original = lab.folder / "original"
    lab.storlab("suite", "run", runfile, "--tests", runfile.parent, *two, original, timeout=LIMIT)
    theirs: dict[tuple[str, str], ResultLine] = {}
    for attempt in read_suite_run(original).results.values():
        text = (original / attempt.folder / "stdout").read_text(errors="replace")
        assert "Results Summary" in text, (attempt, text[-2000:])
        theirs.update(by_script(text))
    return Scripts(read_suite_run(lab.out), by_script(said.stdout), theirs)


def test_each_script_of_the_zfs_test_suite_has_the_result_that_the_original_runner_gives(scripts: Scripts) -> None:
    differ = {key: (scripts.ours[key], scripts.theirs[key]) for key in scripts.ours.keys() & scripts.theirs.keys()}
    differ = {key: pair for key, pair in differ.items() if pair[0].outcome is not pair[1].outcome}
    limits = {attempt.path: attempt.limit or 0.0 for attempt in scripts.run.attempts}
    given_longer = {
        key
        for key, (_, theirs) in differ.items()
        if theirs.outcome is Outcome.KILLED and theirs.elapsed >= limits[key[1]] > 0
    }
    for key, (ours, theirs) in sorted(differ.items()):
        why = "the original gives a slow guest no longer" if key in given_longer else "differs"
        print(
            f"{report_name(key[1])}: {ours.outcome} in {ours.elapsed} s, with the original {theirs.outcome} "
            f"in {theirs.elapsed} s; {why}"
        )
    same = len(scripts.ours) - len(differ)
    print(f"{', '.join(GROUPS)}: {len(scripts.ours)} scripts, {same} with the same result")
    assert scripts.ours.keys() == scripts.theirs.keys()
    assert differ.keys() == given_longer


def test_groups_of_the_zfs_test_suite_had_tests_and_all_of_them_a_result(scripts: Scripts) -> None:
    tags = {tag for group in scripts.run.asked.groups for tag in group.tags}
    assert set(GROUPS) <= tags and scripts.run.without_result == []
    assert {key[1] for key in scripts.run.results} == {
        path for _, path in scripts.theirs if path.rpartition("/")[2] not in ("setup", "cleanup")
    }
