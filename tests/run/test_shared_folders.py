"""Folders of this machine in guests, over virtiofs and 9p: what can't be, what goes wrong, and what is counted."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import BEGUN, endings, guests, kill_guest, once_begun
from laboratory.samples import sample
from storlab.images.unpacked import find_virtiofsd
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.share_requests import ShareRequestsProbe
from storlab.probes.subject import ShareMount, read_subject
from storlab.records.derive import derive
from storlab.report.language.say import say
from storlab.run.planning.design import design_of
from storlab.study.study import load_study, shipped_studies

STUDY = shipped_studies()["shared-folders"]
SMALL = ("runtime=0.2s", "nodes.vm.memory=192M", 'patterns=["randwrite"]')
DAEMON = '[{ layer = "directory" }, { layer = "virtiofsd" }, { layer = "virtiofs" }]'
READS_ON = sample(__file__, "cases/reads-on.sh", begun=BEGUN)
OWNERS = sample(__file__, "cases/owners.sh")
in_guests = pytest.mark.needs("guests", "virtiofsd")


def absent(*overrides: str) -> set[str]:
    """Why claims of the study can't be answered with these parameters."""
    return {say(claim.absent) for claim in design_of(load_study(STUDY, list(overrides))).claims if claim.absent}


def test_its_profiles_have_what_virtiofs_tests_runs_and_each_claim_can_be_answered_by_one() -> None:
    assert len(load_study(STUDY).cells) == 9 * 2 * 3
    unpatched, one_size = "This run has no emulator=patched.", "This run has no size=16G and no size=1G."
    assert absent("profile=seed") == {unpatched, one_size}
    assert absent("profile=window") == {unpatched}
    assert absent("profile=seed", 'qemus=["default","patched"]', "patched=/opt/qemu") == {one_size}


@pytest.fixture
def with_dax(lab: Laboratory) -> tuple[Path, Path]:
    """A QEMU that has a DAX window, as far as its command line goes, and what notes those."""
    qemu, log = lab.folder / "qemu", lab.folder / "log"
    qemu.write_text(sample(__file__, "cases/qemu-with-dax.sh", log=log))
    qemu.chmod(0o755)
    return qemu, log


@in_guests
@pytest.mark.needs("numactl")
def test_the_published_experiment_is_planned_and_needs_a_qemu_with_dax(
    lab: Laboratory, with_dax: tuple[Path, Path]
) -> None:
    qemu, _ = with_dax
    # As it is, but for memory and disk, which not every machine has.
    wanted = [word for each in ("profile=seed", "memory=384M", "cpus=1", 'sizes=["2M"]') for word in ("--set", each)]

    def unsupported(*options: str) -> set[tuple[str, bool]]:
        planned = lab.storlab("plan", STUDY, "--json", "--rounds", "3", *wanted, *options, timeout=100)
        assert planned.status == 0, planned
        cells = json.loads(planned.stdout)["cells"]
        jobs = Counter((cell["levels"]["setup"], cell["levels"]["binding"]) for cell in cells)
        assert len(jobs) == 9 * 2 and set(jobs.values()) == {30}
        lacks = "has no cache-size for its vhost-user-fs-pci"
        return {(each["levels"]["setup"], lacks in why) for each in cells for why in each["unsupported"]}

    assert unsupported("--set", f"qemu={qemu}") == set()
    assert unsupported() == {(f"virtiofs-{cache}-dax", True) for cache in ("none", "auto", "always")}


@in_guests
def test_set_ups_run_and_what_can_not_be_has_its_reason(lab: Laboratory, with_dax: tuple[Path, Path]) -> None:
    """A set-up of each kind: those that a page of the documentation compares are not among them."""
    qemu, log = with_dax
    setups = ("virtiofs-none", "virtiofs-always", "virtiofs-none-dax", "9p-none", "9p-mmap")
    settings = (*SMALL, 'sizes=["2M"]', 'ioengines=["mmap", "psync"]', f"qemu={qemu}")
    options = [f"--only=setup={','.join(setups)}", *(word for each in settings for word in ("--set", each))]
    ran = lab.storlab("run", STUDY, "--out", lab.out, "--rounds", "1", "--quiet", *options, timeout=500)
    assert ran.status == 0, ran
    found = {
        (each.levels["setup"], each.levels["ioengine"]): (each.status, each.reason or "") for each in lab.records()
    }
    assert len(found) == 2 * len(setups)
    # A guest with a window is booted with it, on its command line.
    asked = [json.loads(word) for word in log.read_text().split() if '"cache-size"' in word]
    assert {(each["driver"], each["cache-size"]) for each in asked} == {("vhost-user-fs-pci", 16 * 1024**3)}
    for (setup, engine), (status, reason) in found.items():
        if setup.endswith("-dax"):
            assert (status, "No cache capability" in reason) == ("unsupported", True), reason
        elif engine == "mmap" and setup in ("virtiofs-none", "9p-none"):
            errno = "ENODEV, no such device" if setup == "virtiofs-none" else "EINVAL, invalid argument"
            assert (status, reason.endswith(f"fio's engine mmap got {errno}")) == ("unsupported", True), reason
        else:  # what maps no files reads and writes them all the same
            assert status == "done", (setup, reason)
    table = lab.storlab("report", lab.out, "--format", "virtiofs-tests").stdout
    lines = {(fields[0], fields[1]): fields[2:] for line in table.splitlines() if (fields := line.split())}
    assert lines["vtfs-none", "randwrite-mmap"] == lines["vtfs-none-dax", "randwrite-mmap"] == ["0kb", "0"]
    assert lines["9p-mmap", "randwrite-mmap"][1] != "0"


@in_guests
def test_sshfs_stands_beside_virtiofs_and_both_are_held_to_the_requests_of_an_operation(lab: Laboratory) -> None:
    study = shipped_studies()["shared-folders-network"]
    options = ["--rounds", "1", "--quiet", "--only", "setup=virtiofs-none,sshfs"]
    options += [word for each in (*SMALL, "size=2M") for word in ("--set", each)]
    ran = lab.storlab("run", study, "--out", lab.out, *options, timeout=500)
    assert ran.status == 0, ran
    assert {each.levels["setup"]: each.status for each in lab.records()} == {"virtiofs-none": "done", "sshfs": "done"}
    counted = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), metric="requests.per-operation")
    assert sorted(counted["trial"].unique()) == [1, 2] and (counted["value"] >= 1).all()


@in_guests
@pytest.mark.parametrize(("implementation", "version"), [("rust", "1."), ("c", "7.")])
def test_each_guest_has_its_own_daemon_and_sees_the_others_files(
    lab: Laboratory, implementation: str, version: str
) -> None:
    load = "echo $node > $target/../$node.txt; i=0; while [ $(cat $target/../*.txt | wc -l) != 2 ]; do"
    load += " i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.2; done"
    daemon = f'{{ layer = "virtiofsd", cache = "none", implementation = "{implementation}" }}'
    stack = f'[{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]'
    lab.succeed(guests(load, stack=stack), unconfined=True)
    (record,) = lab.records()
    facts = [each for layers in record.facts.values() for each in layers if each["layer"] == "virtiofsd"]
    assert [each["version"].startswith(version) for each in facts] == [True, True]


@in_guests
@pytest.mark.parametrize("handles", ["never", "mandatory"])
def test_owners_and_modes_are_as_the_guests_root_sets_them_but_no_device_is_made(lab: Laboratory, handles: str) -> None:
    daemon = f'{{ layer = "virtiofsd", cache = "never", xattr = true, inode_file_handles = "{handles}" }}'
    stack = f'[{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]'
    lab.succeed(guests(OWNERS, stack=stack, count="1"), unconfined=True)


def send(number: signal.Signals) -> Callable[[Laboratory], None]:
    """To one of the daemons."""

    def act(lab: Laboratory) -> None:
        commands = lab.commands().items()
        daemons = (pid for pid, words in commands if any(word.startswith("--socket-path=") for word in words))
        os.kill(next(daemons), number)

    return act


@in_guests
@pytest.mark.parametrize(
    ("action", "trial", "reason"),
    [
        (send(signal.SIGKILL), "", r"node host: virtiofsd of vm-[12] was killed by SIGKILL.*"),
        (lambda lab: kill_guest(lab, "vm-1"), "", r"(?!.*virtiofsd).*vm-1.*"),
        (send(signal.SIGSTOP), 'timeout = "12s"', r".*stopped at its time-out of 12 s.*"),
    ],
    ids=["daemon killed", "guest killed", "daemon stands still"],
)
def test_what_goes_wrong_fails_the_trial_with_its_name_and_the_next_one_runs(
    lab: Laboratory, action: Callable[[Laboratory], None], trial: str, reason: str
) -> None:
    study = guests(READS_ON, stack=DAEMON, rounds=2, trial=trial)
    with once_begun(lab, ("vm-1", "vm-2"), lambda: action(lab)):
        lab.execute(study)
    first, second = endings(lab)
    assert first[0] == "failed" and re.fullmatch(reason, str(first[1]), re.DOTALL), first
    assert second == ("done", None)


@in_guests
@pytest.mark.parametrize("crossing", ['{ layer = "virtiofsd" }, { layer = "virtiofs" }', '{ layer = "9p" }'])
def test_a_host_folder_that_is_full_is_named(lab: Laboratory, crossing: str) -> None:
    below = '{ layer = "file", size = "16M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }'
    load = "dd if=/dev/zero of=$target/x bs=64k count=512 conv=fsync"
    lab.execute(guests(load, stack=f'[{below}, {{ layer = "mount" }}, {crossing}]', count="1"))
    ((status, reason),) = endings(lab)
    assert status == "failed" and "No space left on device" in str(reason), reason


@in_guests
def test_a_daemon_without_a_file_descriptor_left_is_named(lab: Laboratory) -> None:
    daemon = '{ layer = "virtiofsd", open_files = 700 }'
    load = "for i in $(seq 150); do echo $i > $target/$i || exit 1; done"
    stack = f'[{{ layer = "directory" }}, {daemon}, {{ layer = "virtiofs" }}]'
    lab.execute(guests(load, stack=stack, count="1"))
    ((status, reason),) = endings(lab)
    assert status == "failed" and "Too many open files" in str(reason), reason
    assert re.search(
        r"\(virtiofsd-vm on host has \d+ files open of at most 700, some of them for itself\)$", str(reason)
    ), reason


READS, WRITES, OF_9P = 23, 31, 17
TRACER = '{{ layer = "virtiofsd", cache = "never", path = "{}" }}'
# A call that was interrupted by another thread's stands on two lines, of which the last has the result.
_CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(preadv|pwritev)2?\b.*= \d+$", re.MULTILINE)


@pytest.fixture
def short_scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The path of a socket may have 107 characters."""
    folder = Path("/tmp") / secrets.token_hex(2)
    monkeypatch.setattr(Laboratory, "scratch", property(lambda self: folder))
    yield
    folder.rmdir()


@in_guests
@pytest.mark.needs("strace")
@pytest.mark.usefixtures("short_scratch")
def test_what_a_guests_kernel_counts_is_what_its_loads_did_and_what_a_daemon_got(lab: Laboratory) -> None:
    words = find_virtiofsd("rust")
    assert words is not None
    daemon, log = lab.folder / "virtiofsd", lab.folder / "calls"
    daemon.write_text(sample(__file__, "cases/traced-virtiofsd.sh", words=shlex.join(words), log=log))
    daemon.chmod(0o755)
    counts = {"reads": READS, "writes": WRITES, "nine": OF_9P}
    lab.succeed(sample(__file__, "cases/share-requests.toml", daemon=TRACER.format(daemon), **counts))

    def of(share: ShareMount) -> dict[str, float]:
        """As if this were the node's only mount."""
        only = subject.model_copy(update={"shares": (share,)})
        return dict(ShareRequestsProbe().parse(ProbeRecord(raw, Window(0.0, 1e9), only)).totals())

    raw = lab.run_folder.trial_folder(1) / "v" / "probe-share-requests"
    subject, calls = read_subject(raw), _CALL.findall(log.read_text())
    used, unused = (each for each in subject.shares if each.protocol == "fuse")
    found = of(used)
    assert (found["requests.read"], found["requests.write"]) == (READS, WRITES)
    assert (calls.count("preadv"), calls.count("pwritev")) == (READS, WRITES)
    assert found["requests"] == READS + WRITES + found["requests.metadata"]
    assert found["requests.metadata"] > 0
    assert WRITES * 8192 < found["requests.bytes"] < WRITES * 8192 + 100 * found["requests"], "with headers"
    assert found["replies.bytes"] > READS * 8192
    assert set(of(unused).values()) == {0.0}
    (nine,) = (each for each in subject.shares if each.protocol == "9p")
    assert (of(nine)["requests.read"], of(nine)["requests.write"]) == (0, OF_9P)
    totals = dict(
        lab.run_folder.metrics.filter(node="v", source="probe:share-requests").select("metric", "value").rows()
    )
    assert (totals["requests.read"], totals["requests.write"]) == (READS, WRITES + OF_9P), "of all mounts together"
    assert "requests.bytes" not in totals, "those of 9p are not known"


PERIOD, QUOTA = 300_000, 1_000  # µs: a 300th, in slices too short for a whole load to fit into one


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A virtiofsd that gets a 300th of a CPU."""
    base = Path("/sys/fs/cgroup/cpu")
    group = (base if base.is_dir() else Path("/sys/fs/cgroup")) / f"held-{os.getpid()}"
    words = find_virtiofsd("rust")
    assert words is not None
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
        elif (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(QUOTA))
        else:
            pytest.skip("no cgroup of this machine limits CPU time")
        script = tmp_path / "held"
        script.write_text(sample(__file__, "cases/held-virtiofsd.sh", group=group, words=" ".join(words)))
        script.chmod(0o755)
        yield script
    finally:
        group.rmdir()


@in_guests
@pytest.mark.timeout(900)
def test_a_daemon_that_is_held_back_is_worse_and_two_alike_are_not_told_apart(lab: Laboratory, held: Path) -> None:
    outcome = lab.execute(sample(__file__, "cases/held-back.toml", path=held))
    assert outcome.ending == "complete", [record.reason for record in lab.records() if record.status != "done"]
    answers = {(each.a, each.b): each for each in outcome.summary.comparisons}
    assert answers["one", "held"].verdict == "better", answers
    assert answers["one", "other"].verdict in ("undecided", "equivalent"), answers
