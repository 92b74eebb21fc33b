"""``--here``: a suite on this machine, by its name: adapters, orders, ends, and what tests leave on its own devices."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest

from laboratory import Ended, Laboratory, ended, kill, opened, wait_for
from laboratory.devices import new_device
from laboratory.samples import sample
from run.test_suites import planted, result
from storlab.base.errors import NodeError
from storlab.suites.ktap import read_ktap
from storlab.suites.model import Outcome
from storlab.suites.records.folder import RESULTS, UNDER_WAY, SuiteRun, read_suite_run
from study.program import call

pytestmark = pytest.mark.needs("root")
HERE = socket.gethostname()
HEAD = "[DEFAULT]\nuser = root\ntimeout = 2\npre =\npost =\n"
MOUNTS = 'set -e; set -- $DISKS; mkfs.ext4 -q /dev/$1 8M; mkdir "$TMPDIR/m"; mount /dev/$1 "$TMPDIR/m"'


def own(folder: Path, options: str = "", **scripts: str) -> tuple[str | Path, ...]:
    """The words that run these scripts as tests of one group."""
    head = f"{HEAD}[tests/here]\ntests = {[name for name in scripts if name not in ('setup', 'cleanup')]}\n{options}"
    runfile = planted(folder / "own", {f"tests/here/{name}": text for name, text in scripts.items()}, head)
    return ("suite", "run", runfile, "--tests", runfile.parent, "--here", HERE)


def file_of(lab: Laboratory, text: str) -> tuple[str | Path, ...]:
    path = lab.folder / "suite.toml"
    path.write_text(text)
    return ("suite", "run", path, "--here", HERE)


def outcomes(lab: Laboratory) -> dict[str, Outcome]:
    return {key[1].rpartition("/")[2]: each.outcome for key, each in read_suite_run(lab.out).results.items()}


def under_way(lab: Laboratory, test: str) -> bool:
    path = lab.out / UNDER_WAY
    return path.exists() and f"/{test}".encode() in path.read_bytes()


def killed_during(lab: Laboratory, words: tuple[str | Path, ...], test: str, number: signal.Signals) -> Ended:
    """A run whose controller gets a signal while a test runs."""
    running = lab.start(*words, "--out", lab.out)
    wait_for(running, lambda: under_way(lab, test))
    kill(running, number)
    return ended(running, 60)


def test_a_test_that_fails_is_held_before_its_group_is_cleaned_up(lab: Laboratory) -> None:
    scripts = {"fails": 'echo pool > "$TMPDIR/state"; exit 1', "passes": "true", "cleanup": 'rm "$TMPDIR/state"'}
    words = own(lab.folder, "post = cleanup\n", **scripts)
    (lab.folder / "typed").write_text(f"cat $TMPDIR/state > {lab.folder}/seen; exit 7\n")
    with (lab.folder / "typed").open("rb") as typed:
        said = lab.storlab(*words, "--shell-on-failure", "--out", lab.out, stdin=typed)
    assert outcomes(lab)["passes"] is Outcome.PASS and said.status == 3, said
    assert (lab.folder / "seen").read_text() == "pool\n" and said.stderr.count("A shell in it") == 1


def test_tests_run_on_this_machine_and_nothing_of_them_is_left() -> None:
    scripts = {
        "tests/here/passes": "echo $DISKS; hostname; pwd -P; id -un",
        "tests/here/skips": "exit 4",
        "tests/here/ignores_term": 'trap "" TERM; while :; do sleep 1000; done',
        # What is on the run's own disks and files is removed with them.
        "tests/here/mounts": f'{MOUNTS}; echo data > "$TMPDIR/m/file"',
        "tests/here/attaches": 'set -e; truncate --size 8M "$TMPDIR/own"; losetup --find "$TMPDIR/own"',
        "tests/here/stays": "setsid sleep 31415 > /dev/null 2>&1 &",
        "tests/here/after": "true",
        "tests/users/nobody": "id -un; touch $TMPDIR/by-nobody",
    }
    here = [name.rpartition("/")[2] for name in scripts if "here" in name]
    text = f"{HEAD}[tests/here]\ntests = {here}\n[tests/users]\ntests = ['nobody']\nuser = nobody\n"
    with tempfile.TemporaryDirectory(prefix="sl-here-") as folder:
        Path(folder).chmod(0o755)  # which all users may enter
        with opened(Laboratory(Path(folder))) as lab:
            runfile = planted(lab.folder / "own", scripts, text)
            said = lab.storlab("suite", "run", runfile, "--tests", runfile.parent, "--here", HERE, "--out", lab.out)
            run, found = read_suite_run(lab.out), outcomes(lab)
            passed = dict.fromkeys([*here, "nobody"], Outcome.PASS)
            assert found == passed | {"skips": Outcome.SKIP, "ignores_term": Outcome.KILLED}, said
            assert said.status == 3 and run.without_result == []
            lines = (lab.out / result(run, "/passes").folder / "stdout").read_text().split("\n")
            disks, host, place, user = lines[:4]
            assert len(disks.split()) == 3 and disks.startswith("loop") and (host, user) == (HERE, "root")
            assert place.startswith("/var/tmp/storlab-") and not Path(place).exists()
            assert "process sleep" in said.stdout, said
            assert run.asked.environment is not None and run.asked.environment.image == ""
            # `opened` looks for loop devices, mounts and folders of its runs that are left.


def test_a_controller_that_is_killed_or_interrupted_leaves_what_clean_and_resume_find(lab: Laboratory) -> None:
    waits = f"until test -e {lab.folder}/go; do sleep 0.1; done"
    options = "timeout = 60\npre = setup\n"
    words = own(lab.folder, options, setup="echo set up", first=MOUNTS, second=waits, third="true")
    killed_during(lab, words, "second", signal.SIGKILL)
    cleaned = lab.storlab("clean", lab.out)
    assert cleaned.status == 0 and "removed" in cleaned.stdout, cleaned
    resumed = lab.start("suite", "resume", lab.out)
    results = lab.out / RESULTS
    wait_for(resumed, lambda: results.read_bytes().count(b'"pre"') == 2 and under_way(lab, "second"))
    kill(resumed, signal.SIGINT)  # the second test is finished first
    (lab.folder / "go").touch()
    interrupted = ended(resumed)
    assert interrupted.status == 130 and "storlab suite resume" in interrupted.stderr, interrupted
    assert outcomes(lab).keys() == {"first", "second"}
    said = lab.storlab("suite", "resume", lab.out)
    run = read_suite_run(lab.out)
    assert said.status == 0, said
    tests = [each.path.rpartition("/")[2] for each in run.attempts if each.role == "test"]
    assert tests == ["first", "second", "third"] and run.finished is not None
    assert [each.role for each in run.attempts].count("pre") == 3


def test_what_tests_run_is_ended_before_what_they_work_on_is_torn_down(lab: Laboratory) -> None:
    first = f"{MOUNTS}; cd $TMPDIR/m; setsid sleep 31416 > /dev/null 2>&1 &"
    words = own(lab.folder, first=first, second='trap "" TERM; cd "$TMPDIR/m"; while :; do sleep 1000; done')
    said = killed_during(lab, words, "second", signal.SIGTERM)
    assert said.status == 130 and "could not be torn down" not in said.stderr, said


def test_a_test_that_took_the_machine_down_has_a_result(lab: Laboratory) -> None:
    killed_during(lab, own(lab.folder, one="sleep 1000", two="true"), "one", signal.SIGKILL)
    # As if the machine had been booted since: that is all that tells it from a killed controller.
    path = lab.out / UNDER_WAY
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "boot": "another"}))
    said = lab.storlab("suite", "resume", lab.out)
    assert outcomes(lab) == {"one": Outcome.CRASHED, "two": Outcome.PASS}, said
    assert "this machine went down while it ran" in said.stderr and said.status == 3


def test_a_test_that_hangs_in_the_kernel_is_told_and_nothing_more_is_run_before_it_is_gone(lab: Laboratory) -> None:
    mounted = lab.folder / "frozen"
    frozen = f"""set -e
        truncate --size 16M {mounted}.img
        mkfs.ext4 -q {mounted}.img
        mkdir {mounted}
        mount -o loop {mounted}.img {mounted}
        fsfreeze --freeze {mounted}
        touch {mounted}/file"""
    try:
        said = lab.storlab(*own(lab.folder, one=frozen, two="true"), "--out", lab.out)
        again = lab.storlab("suite", "resume", lab.out)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", mounted], check=False)
    (hung,) = read_suite_run(lab.out).results.values()
    assert (hung.outcome, said.status) == (Outcome.HUNG, 4), said
    assert "not even KILL ended all of its processes, so nothing more was run" in hung.reason
    assert "boot it again, and `storlab suite resume` runs the rest" in said.stderr
    assert again.status == 1 and "they hang in the kernel" in again.stderr, again
    said = lab.storlab("suite", "resume", lab.out)
    subprocess.run(["umount", mounted], check=True)  # of the user's folder: it is told, and left
    assert outcomes(lab) == {"one": Outcome.HUNG, "two": Outcome.PASS}, said
    assert (said.status, read_suite_run(lab.out).without_result) == (3, [])


def test_a_full_disk_of_this_machine_ends_a_run_with_one_sentence_and_it_is_resumed(lab: Laboratory) -> None:
    words = own(lab.folder, a="echo fine", b="head -c 20M /dev/zero", c="echo fine")
    full = lab.folder / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", full], check=True)
    try:
        out = full / "out"
        said = lab.storlab(*words, "--out", out)
        assert said.status == 1 and said.stderr.count("no space left") == 1 and "Traceback" not in said.stderr, said
        assert "`storlab suite resume`" in said.stderr
        subprocess.run(["mount", "-o", "remount,size=64M", full], check=True)
        assert lab.storlab("suite", "resume", out).status == 0 and len(read_suite_run(out).results) == 3
    finally:
        subprocess.run(["umount", full], check=True)


DISK = "[guests]\ndisks = 1\n[groups.own]\ntests = [{ name = 'disk', run = 'echo $DISK1; mkfs.ext4 -q $DISK1' }]\n"


def test_disks_are_named_and_those_with_data_named_twice(lab: Laboratory) -> None:
    with new_device(lab.folder / "disk") as disk:
        words = (*file_of(lab, DISK), "--disk", disk.path)
        lab.storlab(*words, "--out", lab.out).with_status(0)
        again = lab.storlab(*words, "--out", lab.folder / "again").with_status(2)
        lab.storlab(*words, "--wipe", disk.path, "--out", lab.folder / "wiped").with_status(0)
    run = read_suite_run(lab.out)
    assert (lab.out / result(run, "/disk").folder / "stdout").read_text() == f"{disk.path}\n"
    assert "carries a signature of ext4" in again.stderr, again
    assert f"Write --wipe {disk.path} if" in again.stderr and not (lab.folder / "again").exists()


NEEDS_DISK, ON_HERE = "own.toml", ("own.toml", "--here", HERE)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((NEEDS_DISK, "--here", "nosuchmachine"), f"this machine is called {HERE}"),
        ((*ON_HERE, "--guests", "2"), "there is one machine, so leave out --guests"),
        ((NEEDS_DISK, "--disk", "/dev/loop7"), "guests have disks of their own; these are for --here"),
        ((*ON_HERE, "--wipe", "/dev/nosuch"), "it is none of the disks that tests get"),
        ((*ON_HERE, "--disk", "/dev/nosuch"), "there is no block device /dev/nosuch"),
        ((*ON_HERE, "--disk", "/dev/null"), "there is no block device /dev/null"),
        (("zts-sanity", "--rootfs", "/"), "--rootfs goes with a kernel of your own: write --kernel, too"),
        (("zts-sanity", "--kernel", "/none/bzImage"), "there is no kernel at /none/bzImage"),
        (("zts-sanity", "--kernel", "/etc/passwd"), "/etc/passwd is no kernel that a guest can boot"),
        (("zts-sanity", "--kernel", "/vmlinuz", "--here", "x"), "--kernel: with --here, tests run on the kernel"),
        (("zts-sanity", "--memory", "100M"), "--memory: a guest needs 128M at least to boot"),
        (
            ("zts-sanity", "--guests", "256", "--memory", "64G"),
            "256 guests of 64G, and QEMU's own memory, take up 16434G",
        ),
    ],
)
def test_what_is_not_fit_is_refused_in_one_sentence_before_anything_is_set_up(
    lab: Laboratory, words: tuple[str, ...], says: str
) -> None:
    suite = file_of(lab, DISK)[2]
    said = lab.storlab("suite", "run", *(suite if word == NEEDS_DISK else word for word in words), "--out", lab.out)
    assert (said.status, said.stdout) == (2, "") and said.stderr.startswith("storlab: ") and says in said.stderr, said
    assert said.stderr.count("\n") == 1 and not lab.out.exists()


def test_files_of_tests_lie_on_a_disk(lab: Laboratory) -> None:
    lab.environment["FILEDIR"] = "/dev/shm"
    said = lab.storlab(*file_of(lab, "[groups.own]\ntests = [{ name = 'one', run = 'true' }]\n"), "--out", lab.out)
    assert said.status == 2 and "/dev/shm is on memory" in said.stderr, said


def test_test_runner_runs_tests_of_ones_own_where_they_lie(lab: Laboratory) -> None:
    suite = own(lab.folder, passes="echo $0", fails="exit 1")[2]
    assert isinstance(suite, Path)
    results = lab.folder / "results"
    words = ("-c", suite, "-i", suite.parent, "-o", results, "--here", HERE, "--out", lab.out)
    said = lab.storlab("suite", "test-runner", *words)
    assert said.status == 1 and "[FAIL]" in said.stdout, said
    printed = [path.read_text() for path in (results / "current").resolve().rglob("passes*/stdout")]
    assert printed == [f"{suite.parent}/tests/here/passes.sh\n"], said


def test_a_suite_of_which_no_test_was_executed_is_no_success(lab: Laboratory) -> None:
    skips = own(lab.folder, "tags = ['x']\n", skips="exit 4")[2]
    (lab.folder / "own/empty.run").write_text(HEAD)
    original = ("test-runner", "-i", lab.folder / "own", "-c", skips, "-o")  # its folders are named for the second
    for words, status, says in (
        (("run", skips, "--tests", lab.folder / "own"), 125, "No test was executed: all were skipped."),
        (("run", lab.folder / "own/empty.run", "--tests", lab.folder / "own"), 2, "empty.run has no tests"),
        (("run", skips, "--tests", lab.folder / "own", "--tags", "y"), 2, "no group of"),
        ((*original, lab.folder / "one"), 4, "[SKIP]"),
        ((*original, lab.folder / "two", "-T", ","), 2, "-T ',': it names no tag"),
    ):
        said = lab.storlab("suite", *words, "--here", HERE, "--out", lab.folder / f"{status}-{len(says)}")
        assert said.status == status and says in said.stdout + said.stderr, said


def test_a_place_that_can_not_be_had_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_boots(*_: object) -> None:
        raise NodeError("vm-1 did not boot")

    monkeypatch.setattr("storlab.suites.places.kinds.HereMaker.open", never_boots)
    said = call(*map(str, own(tmp_path, passes="true")), "--out", str(tmp_path / "run"))
    assert said.status == 1 and "vm-1 did not boot" in said.message and not (tmp_path / "run").exists()


def test_the_zfs_test_suite_wants_a_user_who_is_not_root(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    said = lab.storlab("suite", "run", "zts-sanity", "--here", HERE, "--out", lab.out)
    assert said.status == 2 and "Traceback" not in said.stderr, said
    assert "this machine can't run the suite" in said.stderr or "a user other than root" in said.stderr
    assert not lab.out.exists()


KTAP = sample(__file__, "cases/ktap.toml")


def test_programs_that_print_ktap_are_judged_by_their_subtests(lab: Laboratory) -> None:
    said = lab.storlab(*file_of(lab, KTAP), "--out", lab.out)
    results = {key[1].rpartition("/")[2]: each for key, each in read_suite_run(lab.out).results.items()}
    assert {name: (each.outcome, each.reason) for name, each in results.items()} == {
        "passes": (Outcome.PASS, ""),
        "fails": (Outcome.FAIL, "1 of 2 subtests failed: nested.b"),
        "is_cut": (Outcome.FAIL, "2 planned results are missing"),
        "skips": (Outcome.SKIP, "no module"),
    }
    assert said.status == 3 and "1 of 2 subtests failed: nested.b" in said.stdout, said
    text = lab.storlab("suite", "report", lab.out, "--format", "ktap").stdout
    (group,) = (read_ktap(text.splitlines()) or pytest.fail(text)).subtests
    assert [(each.name, each.outcome, len(each.subtests)) for each in group.subtests] == [
        ("own/passes", Outcome.PASS, 2),
        ("own/fails", Outcome.FAIL, 1),
        ("own/is_cut", Outcome.FAIL, 1),
        ("own/skips", Outcome.SKIP, 0),
    ]
    assert json.loads(lab.storlab("suite", "report", lab.out, "--format", "json").stdout)["counts"]["FAIL"] == 2


def order(run: SuiteRun) -> list[tuple[str, str]]:
    return [(each.group, each.path.rpartition("/")[2]) for each in run.attempts if each.role == "test"]


def ordered(lab: Laboratory, one: str = "true") -> tuple[str | Path, ...]:
    return file_of(lab, sample(__file__, "cases/ordered.toml", count=lab.folder / "count", one=one))


def test_a_shuffled_suite_runs_until_a_test_fails_and_is_replayed(lab: Laboratory) -> None:
    said = lab.storlab(*ordered(lab), "--until-failure", "--seed", "5", "--out", lab.out)
    assert said.status == 3 and "a/counts did not pass in iteration 3." in said.stderr, said
    run = read_suite_run(lab.out)
    assert run.asked.seed == 5 and run.finished is not None and run.without_result == []
    assert order(run)[-1] == ("a (iteration 3)", "counts") and 9 <= len(order(run)) <= 12

    refused = lab.storlab("suite", "resume", lab.out)
    assert refused.status == 2 and "did not pass in iteration 3. Nothing is left to resume" in refused.stderr, refused
    (lab.folder / "count").unlink()
    said = lab.storlab("suite", "run", "--replay", lab.out, "--here", HERE, "--out", lab.folder / "two")
    assert said.status == 3 and order(read_suite_run(lab.folder / "two")) == order(run), said


def test_a_limit_ends_a_run_that_is_resumed(lab: Laboratory) -> None:
    said = lab.storlab(*ordered(lab, "sleep 1.5"), "--limit", "1s", "--out", lab.out)
    for limit in ("1", "0.001"):
        run = read_suite_run(lab.out)
        assert said.status == 4 and order(run) == [("a", "one")] and run.finished is None, said
        assert f"The limit of {limit} s was reached" in run.stopped and f"The limit of {limit} s" in said.stdout
        said = lab.storlab("suite", "resume", lab.out, *(["--limit", "1ms"] if limit == "1" else []))
    run = read_suite_run(lab.out)
    assert said.status == 0 and order(run) == [("a", "one"), ("a", "counts"), ("a", "two"), ("b", "three")], said
    assert run.finished is not None and not run.stopped


def test_a_run_until_a_failure_that_a_limit_ended_has_further_iterations_once_it_is_resumed(lab: Laboratory) -> None:
    words = ordered(lab, f"test -e {lab.folder}/count || sleep 1.5")
    said = lab.storlab(*words, "--until-failure", "--limit", "1s", "--out", lab.out)
    run = read_suite_run(lab.out)
    assert said.status == 4 and order(run) == [("a", "one")] and run.finished is None, said
    said = lab.storlab("suite", "resume", lab.out)
    assert said.status == 3 and "a/counts did not pass in iteration 3." in said.stderr, said
    ran = order(read_suite_run(lab.out))
    assert ran[:2] == [("a", "one"), ("a", "counts")] and ran[-1] == ("a (iteration 3)", "counts"), ran
    assert len(ran) == len(set(ran)) == 10


def test_a_test_that_passes_at_a_later_try_is_told_apart_and_json_has_the_last(lab: Laboratory) -> None:
    seen = lab.folder / "seen"
    words = own(lab.folder, flaky=f"test -e {seen} && exit 0; touch {seen}; exit 1", calls="true")
    said = lab.storlab(*words, "--retries", "2", "--json", "--out", lab.out)
    document = json.loads(said.stdout)
    assert said.status == 0 and document["counts"] == {"PASS": 2} and document["unexpected"] == [], said
    results = [(each["name"].rpartition("/")[2], each["number"]) for each in document["results"]]
    assert results == [("flaky", 2), ("calls", 1)]
    assert "Passed at a later try only" in lab.storlab("suite", "report", lab.out).stdout
