"""``--here``: a suite on this machine, by its name; what tests leave on Storlab's own devices is removed."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from laboratory import Laboratory, ended, kill, needs_root, wait_until
from laboratory.devices import Device, new_device
from run.test_suites import laboratory, planted, result
from storlab.records.suite import read_suite_run
from storlab.records.suite.under_way import UNDER_WAY
from storlab.suite.model import Outcome

pytestmark = pytest.mark.slow
HERE = socket.gethostname()

RUNFILE = """\
[DEFAULT]
user = root
timeout = 2
pre =
post =

[tests/here]
tests = ['passes', 'nobody', 'ignores_term', 'mounts', 'attaches', 'stays', 'after']

[tests/users]
tests = ['nobody']
user = nobody
"""
SCRIPTS = {
    "tests/here/passes": "echo $DISKS; hostname; pwd -P; id -un",
    "tests/here/nobody": "exit 4",
    "tests/here/ignores_term": 'trap "" TERM; while :; do sleep 1000; done',
    # What is on the run's own disks and files is removed with them.
    "tests/here/mounts": 'set -e; set -- $DISKS; mkfs.ext4 -q /dev/$1 8M; mkdir "$TMPDIR/mine"; '
    'mount /dev/$1 "$TMPDIR/mine"; echo data > "$TMPDIR/mine/file"',
    "tests/here/attaches": 'set -e; truncate --size 8M "$TMPDIR/own"; losetup --find "$TMPDIR/own"',
    "tests/here/stays": "setsid sleep 31415 > /dev/null 2>&1 &",
    "tests/here/after": "true",
    "tests/users/nobody": "id -un; touch $TMPDIR/by-nobody",
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all users may enter."""
    with tempfile.TemporaryDirectory(prefix="sl-here-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_tests_run_on_this_machine_and_nothing_of_them_is_left(lab: Laboratory, public: Path) -> None:
    runfile = planted(public / "own", SCRIPTS, RUNFILE)
    said = lab.storlab("suite", "run", runfile, "--tests", runfile.parent, "--here", HERE, "--out", lab.out)
    run = read_suite_run(lab.out)
    assert {key[1].rpartition("tests/")[2]: each.outcome for key, each in run.results.items()} == {
        "here/passes": Outcome.PASS,
        "here/nobody": Outcome.SKIP,
        "here/ignores_term": Outcome.KILLED,
        "here/mounts": Outcome.PASS,
        "here/attaches": Outcome.PASS,
        "here/stays": Outcome.PASS,
        "here/after": Outcome.PASS,
        "users/nobody": Outcome.PASS,
    }, said
    assert said.status == 3 and run.without_result == []
    disks, host, place, user = (lab.out / result(run, "/passes").folder / "stdout").read_text().split("\n")[:4]
    assert len(disks.split()) == 3 and disks.startswith("loop") and (host, user) == (HERE, "root")
    assert place.startswith("/var/tmp/storlab-") and not Path(place).exists()
    assert "process sleep" in said.stdout, said
    assert run.asked.environment is not None and run.asked.environment.image == ""
    # Leftovers of all kinds: the fixture looks for loop devices, mounts and folders of the laboratory's runs.


@needs_root
def test_a_controller_that_is_killed_leaves_what_clean_and_resume_find(lab: Laboratory) -> None:
    scripts = {
        "tests/here/first": 'set -- $DISKS; mkfs.ext4 -q /dev/$1 8M; mkdir "$TMPDIR/m"; mount /dev/$1 "$TMPDIR/m"',
        "tests/here/second": f"test -e {lab.folder}/go || sleep 1000",
        "tests/here/third": "true",
    }
    runfile = "[DEFAULT]\nuser = root\npre =\npost =\n[tests/here]\ntests = ['first', 'second', 'third']\n"
    own = planted(lab.folder / "own", scripts, runfile)
    words = ("suite", "run", own, "--tests", own.parent, "--here", HERE, "--out", lab.out)
    running = lab.start(*words)
    under_way = lab.out / UNDER_WAY
    assert wait_until(lambda: under_way.exists() and b"/second" in under_way.read_bytes(), 60)
    kill(running)
    ended(running, 60)
    (lab.folder / "go").touch()
    said = lab.storlab("suite", "resume", lab.out)
    run = read_suite_run(lab.out)
    assert said.status == 0, said
    assert [each.path.rpartition("/")[2] for each in run.attempts] == ["first", "second", "third"]


@needs_root
def test_what_tests_run_is_ended_before_what_they_work_on_is_torn_down(lab: Laboratory) -> None:
    mounts = "set -e; set -- $DISKS; mkfs.ext4 -q /dev/$1 8M; mkdir $TMPDIR/m; mount /dev/$1 $TMPDIR/m; cd $TMPDIR/m"
    scripts = {
        "tests/here/first": f"{mounts}; setsid sleep 31416 > /dev/null 2>&1 &",
        "tests/here/second": 'trap "" TERM; cd "$TMPDIR/m"; while :; do sleep 1000; done',
    }
    runfile = "[DEFAULT]\nuser = root\npre =\npost =\n[tests/here]\ntests = ['first', 'second']\n"
    own = planted(lab.folder / "own", scripts, runfile)
    running = lab.start("suite", "run", own, "--tests", own.parent, "--here", HERE, "--out", lab.out)
    under_way = lab.out / UNDER_WAY
    assert wait_until(lambda: under_way.exists() and b"/second" in under_way.read_bytes(), 60)
    kill(running, signal.SIGTERM)
    said = ended(running, 60)
    assert said.status == 130 and "could not be torn down" not in said.stderr, said


@needs_root
def test_a_test_that_took_the_machine_down_has_a_result(lab: Laboratory) -> None:
    scripts = {"tests/here/one": "sleep 1000", "tests/here/two": "true"}
    runfile = "[DEFAULT]\nuser = root\npre =\npost =\n[tests/here]\ntests = ['one', 'two']\n"
    own = planted(lab.folder / "own", scripts, runfile)
    running = lab.start("suite", "run", own, "--tests", own.parent, "--here", HERE, "--out", lab.out)
    under_way = lab.out / UNDER_WAY
    assert wait_until(lambda: under_way.exists() and b"/one" in under_way.read_bytes(), 60)
    kill(running)
    ended(running, 60)
    # As if the machine had been booted since: that is all that tells it from a killed controller.
    document = msgspec.json.decode(under_way.read_bytes())
    under_way.write_bytes(msgspec.json.encode({**document, "boot": "another"}))
    said = lab.storlab("suite", "resume", lab.out)
    run = read_suite_run(lab.out)
    assert {key[1].rpartition("/")[2]: each.outcome for key, each in run.results.items()} == {
        "one": Outcome.CRASHED,
        "two": Outcome.PASS,
    }, said
    assert "this machine went down while it ran" in said.stderr and said.status == 3


@needs_root
def test_a_test_that_hangs_in_the_kernel_is_told_and_nothing_more_is_run_before_it_is_gone(lab: Laboratory) -> None:
    mounted = lab.folder / "frozen"
    frozen = f"""set -e
        truncate --size 16M {mounted}.img
        mkfs.ext4 -q {mounted}.img
        mkdir {mounted}
        mount -o loop {mounted}.img {mounted}
        fsfreeze --freeze {mounted}
        touch {mounted}/file"""
    runfile = "[DEFAULT]\nuser = root\npre =\npost =\ntimeout = 2\n[tests/here]\ntests = ['one', 'two']\n"
    own = planted(lab.folder / "own", {"tests/here/one": frozen, "tests/here/two": "true"}, runfile)
    try:
        said = lab.storlab("suite", "run", own, "--tests", own.parent, "--here", HERE, "--out", lab.out)
        again = lab.storlab("suite", "resume", lab.out)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", mounted], check=False)
    run = read_suite_run(lab.out)
    (hung,) = run.results.values()
    assert (hung.outcome, said.status) == (Outcome.HUNG, 4), said
    assert "not even KILL ended all of its processes, so nothing more was run" in hung.reason
    assert "boot it again, and `storlab suite resume` runs the rest" in said.stderr
    assert again.status == 1 and "they hang in the kernel" in again.stderr, again
    said = lab.storlab("suite", "resume", lab.out)
    subprocess.run(["umount", mounted], check=True)  # of the user's folder: it is told, and left
    run = read_suite_run(lab.out)
    assert [each.outcome for each in run.results.values()] == [Outcome.HUNG, Outcome.PASS], said
    assert (said.status, run.without_result) == (3, [])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Device]:
    with new_device(tmp_path / "disk") as found:
        yield found


@needs_root
def test_disks_are_named_and_those_with_data_named_twice(lab: Laboratory, disk: Device) -> None:
    suite = lab.folder / "own.toml"
    suite.write_text(
        "[guests]\ndisks = 1\n[groups.own]\ntests = [{ name = 'disk', run = 'echo $DISK1; mkfs.ext4 -q $DISK1' }]\n"
    )
    words = ("suite", "run", suite, "--here", HERE, "--disk", disk.path)
    first = lab.storlab(*words, "--out", lab.out)
    run = read_suite_run(lab.out)
    assert first.status == 0, first
    assert (lab.out / result(run, "/disk").folder / "stdout").read_text() == f"{disk.path}\n"
    again = lab.storlab(*words, "--out", lab.folder / "again")
    assert again.status == 2 and "carries a signature of ext4" in again.stderr, again
    assert f"Write --wipe {disk.path} if" in again.stderr and not (lab.folder / "again").exists()
    wiped = lab.storlab(*words, "--wipe", disk.path, "--out", lab.folder / "wiped")
    assert wiped.status == 0, wiped


@needs_root
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--here", "nosuchmachine"), f"this machine is called {HERE}"),
        (("--here", HERE, "--guests", "2"), "there is one machine, so leave out --guests"),
        (("--disk", "/dev/loop7"), "guests have disks of their own; these are for --here"),
        (("--here", HERE, "--wipe", "/dev/nosuch"), "it is none of the disks that tests get"),
        (("--here", HERE, "--disk", "/dev/nosuch"), "there is no block device /dev/nosuch"),
        (("--here", HERE, "--disk", "/dev/null"), "there is no block device /dev/null"),
    ],
)
def test_what_is_not_fit_is_refused_before_anything_is_set_up(
    lab: Laboratory, words: tuple[str, ...], says: str
) -> None:
    suite = lab.folder / "own.toml"
    suite.write_text("[guests]\ndisks = 1\n[groups.own]\ntests = [{ name = 'one', run = 'true' }]\n")
    said = lab.storlab("suite", "run", suite, *words, "--out", lab.out)
    assert said.status == 2 and says in said.stderr and "Traceback" not in said.stderr, said
    assert not lab.out.exists()


@needs_root
def test_files_of_tests_lie_on_a_disk(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = lab.folder / "own.toml"
    suite.write_text("[groups.own]\ntests = [{ name = 'one', run = 'true' }]\n")
    monkeypatch.setenv("FILEDIR", "/dev/shm")
    said = lab.storlab("suite", "run", suite, "--here", HERE, "--out", lab.out)
    assert said.status == 2 and "/dev/shm is on memory" in said.stderr, said


@needs_root
def test_test_runner_runs_tests_of_ones_own_where_they_lie(lab: Laboratory) -> None:
    scripts = {"tests/here/passes": "echo $0", "tests/here/fails": "exit 1"}
    runfile = "[DEFAULT]\nuser = root\npre =\npost =\n[tests/here]\ntests = ['passes', 'fails']\n"
    own = planted(lab.folder / "own", scripts, runfile)
    results = lab.folder / "results"
    words = ("-c", own, "-i", own.parent, "-o", results, "--here", HERE, "--out", lab.out)
    said = lab.storlab("suite", "test-runner", *words)
    assert said.status == 1 and "[FAIL]" in said.stdout, said
    printed = [path.read_text() for path in (results / "current").resolve().rglob("passes*/stdout")]
    assert printed == [f"{own.parent}/tests/here/passes.sh\n"], said


@needs_root
def test_the_zfs_test_suite_wants_a_user_who_is_not_root(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    said = lab.storlab("suite", "run", "zts-sanity", "--here", HERE, "--out", lab.out)
    assert said.status == 2 and "Traceback" not in said.stderr, said
    assert "this machine can't run the suite" in said.stderr or "a user other than root" in said.stderr
    assert not lab.out.exists()
