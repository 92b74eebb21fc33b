"""``storlab suite test-runner`` and ``zfs-tests`` beside the originals, which run in a guest of the same image."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory
from laboratory.guests import needs_guests
from run.test_suites import laboratory, planted
from storlab.records.suite import read_suite_run

pytestmark = pytest.mark.slow

RUNFILE = """\
[DEFAULT]
pre = setup
post = cleanup
pre_user = root
user = root
post_user = root
timeout = 4
failsafe = callbacks/failsafe
failsafe_user = root
tags = ['own']

[tests/planted:Linux]
tests = ['passes', 'fails', 'skips', 'hangs', 'quiet']

[tests/odd]
tests = ['prints']
pre =
post =

[tests/unready]
tests = ['never']

[tests/whoever]
tests = ['whoever']
pre =
post =
user =

[/usr/share/zfs/zfs-tests/tests/functional/hkdf]
tests = ['hkdf_test']
pre =
post =
timeout = 600
"""
SCRIPTS = {
    "callbacks/failsafe": "echo made safe",
    "tests/planted/setup": "echo set up",
    "tests/planted/cleanup": "echo cleaned up >&2",
    "tests/planted/passes": "echo out; sleep 0.3; echo err >&2; sleep 0.3; id -un; echo $SUDO_USER $SUDO_COMMAND",
    "tests/planted/fails": "echo no; exit 1",
    "tests/planted/skips": "exit 4",
    "tests/planted/hangs": "echo waiting; sleep 1000",
    "tests/planted/quiet": "true",
    "tests/odd/prints": r"printf 'a\000b\377\n\nlast\n'",
    "tests/unready/setup": "exit 1",
    "tests/unready/cleanup": "true",
    "tests/unready/never": "true",
    "tests/whoever/whoever": "id -un",
}
# What runs the originals, as a test of its own: their own tests lie at the same place as on this machine.
ORIGINALS = {
    "tests/original/runner": """
mkdir -p "{own}"
cp -a /usr/local/share/storlab-suite/own/. "{own}"
cd "$TMPDIR"
python3 /usr/share/zfs/test-runner/bin/test-runner.py -c "{own}/own.run" -i "{own}" -o "$TMPDIR/original" > console
echo $? > status
tar cf - --exclude current console status original
""",
    "tests/original/zfs_tests": """
cd "$TMPDIR"
env -i PATH="$PATH" HOME="$HOME" USER="$USER" DISKS="$DISKS" \
    /usr/share/zfs/zfs-tests.sh -v -r sanity -T hkdf > console
echo $? > status
cp "$(sed -n 's/^Log directory:[[:space:]]*//p' console)/results" .
tar cf - console status results
""",
}
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
    for lab in laboratory(tmp_path_factory.mktemp("originals")):
        own = planted(lab.folder / "own", SCRIPTS, RUNFILE).parent
        out = lab.folder / "results"
        runner = lab.storlab(
            "suite", "test-runner", "-c", own / "own.run", "-i", own, "-o", out / "runner", "--out", lab.folder / "one",
            timeout=300,
        )  # fmt: skip
        zfs_tests = lab.storlab(
            "suite", "zfs-tests", "-v", "-r", "sanity", "-T", "hkdf", "--outputdir", out / "zts", "--out",
            lab.folder / "two", timeout=300,
        )  # fmt: skip
        scripts = {name: script.format(own=own) for name, script in ORIGINALS.items()}
        beside = planted(
            lab.folder / "beside", scripts, "[tests/original]\ntests = ['runner', 'zfs_tests']\ntimeout = 300"
        )
        planted(lab.folder / "beside" / "own", SCRIPTS, RUNFILE)
        lab.storlab("suite", "run", beside, "--tests", beside.parent, "--out", lab.out, timeout=500)
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


@needs_guests
def test_the_console_and_status_of_test_runner_are_the_originals_but_for_times(both: Both) -> None:
    original = both.original / "runner"
    assert without_times(both.runner.stdout.encode()) == without_times((original / "console").read_bytes())
    assert both.runner.status == int((original / "status").read_text()) == 1


@needs_guests
def test_its_folders_and_files_are_the_originals_but_for_times(both: Both) -> None:
    (theirs,) = (both.original / "runner" / "original").glob("2*")
    ours = both.lab.folder / "results" / "runner" / "current"
    assert files(ours.resolve()) == files(theirs)
    assert len(files(theirs)) == 30 and "planted:Linux/hangs/failsafe/stdout" in files(theirs)


@needs_guests
def test_what_zfs_tests_prints_and_writes_are_the_originals_but_for_times(both: Both) -> None:
    original = both.original / "zfs_tests"
    theirs, ours = without_times((original / "console").read_bytes()), without_times(both.zfs_tests.stdout.encode())
    assert ours == theirs
    assert both.zfs_tests.status == int((original / "status").read_text()) == 0
    results = both.lab.folder / "results" / "zts" / "current" / "results"
    assert without_times(results.read_bytes()) == without_times((original / "results").read_bytes())


@needs_guests
def test_a_dry_run_and_a_template_run_nothing(both: Both) -> None:
    lab, own = both.lab, both.lab.folder / "own"
    written = lab.folder / "template.run"
    ended = lab.storlab("suite", "test-runner", "-g", "-w", written, "-i", own, own / "tests" / "odd", timeout=120)
    assert ended.status == 0 and f"[{own}/tests/odd]\ntests = ['prints.sh']\n" in written.read_text(), ended


@needs_guests
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
