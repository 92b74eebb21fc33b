"""A run that is killed, or whose machine lacks memory or loses its disk: what is left is found, and said in words."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from attacks import ATTACKS, SEED
from laboratory import COMMAND, Laboratory, ended, interrupt, kill, wait_for, wait_until
from laboratory.devices import Device, sh
from laboratory.studies import DIRECTORY, LOOPS, directory
from laboratory.trust import allowing
from storlab.base.programs import agent_path
from storlab.doctor.runs import without_journal
from storlab.nodes.accounts import private_name
from storlab.nodes.processes import Agents, Controller, cgroup_name
from storlab.nodes.undo import run_of
from storlab.run.beginning import new_run_id
from storlab.run.recovery.orphans import Orphan, living, orphans, remove
from storlab.run.recovery.temporary import remember_run, remember_scratch, remembered_runs, scratch_roots
from storlab.run.session import open_session
from study.program import call

LOOP = '[{ layer = "file", size = "32M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]'
WAITING = directory('command = { argv = ["sleep", "3600"] }', stack=LOOP)


def kill_agents(lab: Laboratory) -> None:
    for pid, words in lab.commands().items():
        if words[0].endswith("storlab-agent"):
            os.kill(pid, signal.SIGKILL)


def of(run: str, soon: float = 0.0) -> list[Orphan]:
    """What is left of one run; others may be tested at the same time."""
    return [orphan for orphan in orphans(soon) if orphan.run == run]


def remove_all(run: str) -> tuple[list[str], list[str]]:
    async def work() -> tuple[list[str], list[str]]:
        async with open_session(new_run_id()) as session:
            return await remove(of(run), session)

    return asyncio.run(work())


def killed_with_its_agents(lab: Laboratory) -> str:
    """A run of which everything was killed at once, but its load; and its name."""
    process = lab.start_run(WAITING, "--quiet")
    wait_for(process, lab.sleeps)
    run = lab.identity
    kill_agents(lab)
    kill(process)
    ended(process)
    assert wait_until(lambda: run not in living(), 20.0)
    return run


@pytest.mark.needs("root")
def test_all_that_a_killed_run_left_is_found_and_undone_without_its_journal(lab: Laboratory) -> None:
    run = killed_with_its_agents(lab)
    shutil.rmtree(lab.out)
    shutil.rmtree(lab.folder / "state")
    found = of(run)
    assert of(run, soon=3600.0) == [], "what was left a moment ago is left to who takes care of it"
    assert {"processes.end", "mount.unmount", "loop.detach", "scratch.remove"} <= {orphan.undo for orphan in found}
    (line,) = without_journal(found)
    assert (line.status, line.remedy) == ("warn", "storlab clean") and run in line.name
    did, failed = remove_all(run)
    assert failed == [] and any("unmounted" in each for each in did)
    assert of(run) == [] and list(lab.scratch.iterdir()) == []
    assert wait_until(lambda: not lab.processes(), 10.0)


@pytest.mark.needs("root")
@pytest.mark.parametrize("also", ["nothing else", "its scratch folder"])
def test_clean_undoes_what_a_run_left_whose_folder_was_just_removed_by_hand(lab: Laboratory, also: str) -> None:
    """Also where its file is gone, too, and only the loop device keeps it. It needs no minute to pass."""
    run = killed_with_its_agents(lab)
    assert wait_until(lambda: lab.storlab("clean").status == 2 and run in lab.storlab("clean").stdout, 10.0)
    shutil.rmtree(lab.out)
    if also != "nothing else":
        for path in Path("/proc/self/mountinfo").read_text().split():
            if run in path and path.startswith("/"):
                sh("umount", path)
        (scratch,) = lab.scratch.iterdir()
        shutil.rmtree(scratch)
    asked = lab.storlab("clean")
    assert asked.status == 2 and f"{lab.out} is gone" in asked.stdout and "loop.detach" in asked.stdout, str(asked)
    cleaned = lab.storlab("clean", "--yes")
    assert cleaned.status == 0, str(cleaned)
    assert "detached /dev/loop" in cleaned.stdout and "it is forgotten" in cleaned.stdout, str(cleaned)
    assert of(run) == [] and lab.leftovers() == []


def test_a_scratch_folder_alone_is_named_with_the_command_until_its_run_is_surely_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but a folder, where only this study has folders: its run may be alive in another container."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = new_run_id()
    scratch = tmp_path / private_name(run)
    scratch.mkdir()
    remember_run(run, tmp_path / "gone")
    remember_scratch(run, str(tmp_path))
    cleaned = call("clean", "--yes")
    assert f"folder {scratch} left alone" in cleaned.output and f"`rm -r {scratch}`" in cleaned.output
    assert scratch.exists() and list(remembered_runs()) == [run]
    os.utime(scratch, (0, 0))
    assert call("clean", "--yes").status == 0
    assert not scratch.exists() and not remembered_runs() and not scratch_roots()


@pytest.mark.needs("root")
def test_a_run_that_goes_on_without_its_folder_is_not_forgotten(lab: Laboratory) -> None:
    process = lab.start_run(WAITING, "--quiet")
    wait_for(process, lab.sleeps)
    run, moved = lab.identity, lab.folder / "moved"
    lab.out.rename(moved)
    cleaned = lab.storlab("clean", "--yes")
    assert "the run is still going on: left alone" in cleaned.stdout, str(cleaned)
    assert lab.links == [run] and lab.sleeps()
    moved.rename(lab.out)
    interrupt(process, [signal.SIGINT, signal.SIGINT])
    ended(process)


@pytest.mark.needs("root")
def test_an_agent_that_is_killed_while_a_study_is_planned_leaves_no_cgroup_for_ever(lab: Laboratory) -> None:
    process = lab.start("plan", lab.study(LOOPS))
    wait_for(process, lambda: any(words[0].endswith("storlab-agent") for words in lab.commands().values()))
    before = {path.name for path in cgroups_of(process.pid)}
    kill_agents(lab)
    kill(process)
    ended(process)
    for name in before:
        run = name.removeprefix("storlab-").partition(".")[0]
        assert wait_until(partial(_dead, run), 20.0)
        remove_all(run)
    assert cgroups_of(process.pid) == []


@pytest.mark.needs("root")
def test_an_empty_cgroup_of_a_controller_that_is_gone_is_an_orphan_however_new_its_times_look() -> None:
    """The kernel renews these whenever somebody drops its caches; and another process may have the number by now."""
    run = new_run_id()
    other = Controller(os.getpid(), Controller.this().started - 1)
    name = cgroup_name(Agents(run, other, "host"), 1)
    (root,) = {path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if _is_v2(path)}
    (root / name).mkdir()
    try:
        assert [(orphan.undo, str(orphan)) for orphan in of(run, soon=0.0)] == [("processes.end", name)]
        assert of(run, soon=3600.0) == []
        assert remove_all(run) == ([f"removed the cgroup {name}"], [])
    finally:
        if (root / name).exists():
            (root / name).rmdir()


@pytest.mark.needs("root")
def test_a_run_whose_processes_are_in_another_container_is_alive_though_its_cgroup_is_seen_here() -> None:
    run = new_run_id()
    gone = Controller(os.getpid(), Controller.this().started - 1)
    (root,) = {path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if _is_v2(path)}
    folder = root / cgroup_name(Agents(run, gone, "host"), 1)
    folder.mkdir()
    asked = f"from storlab.run.recovery.orphans import orphans; print([o for o in orphans(0.0) if o.run == {run!r}])"
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", asked]
    try:
        with subprocess.Popen(["sleep", "60"]) as process:
            (folder / "cgroup.procs").write_text(str(process.pid))
            assert subprocess.run(inside, check=True, capture_output=True, text=True).stdout == "[]\n"
            assert [orphan.undo for orphan in of(run, soon=0.0)] == ["processes.end"], (
                "here its controller is seen dead"
            )
            process.kill()
    finally:
        assert wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10)
        folder.rmdir()


@pytest.mark.needs("root")
@pytest.mark.parametrize("folder", [False, True])
def test_a_pool_of_which_nothing_else_is_here_may_be_another_containers_and_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    """The kernel shows pools to all containers. Where the run's folder is here, too, it was a run of this machine."""
    run = new_run_id()
    pool = f"storlab-{run}-host-0-01234567"
    (tmp_path / "zfs" / pool).mkdir(parents=True)
    monkeypatch.setattr("storlab.run.recovery.orphans._POOLS", tmp_path / "zfs")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if folder:
        (tmp_path / f"storlab-{run}-x").mkdir()
    did, failed = remove_all(run)
    told = f"pool {pool} left alone: nothing else of its run is here"
    assert (any(each.startswith(told) for each in did), failed) == (not folder, [])
    if not folder:
        assert f"`zpool destroy {pool}`" in did[0]


def _is_v2(path: Path) -> bool:
    return (path / "cgroup.procs").exists() and (path / "cgroup.controllers").exists()


def _dead(run: str) -> bool:
    return run not in living()


NAMED = """#!/bin/sh
# Whether the journal names the cgroup that this agent is about to make.
for word; do case $word in storlab-*) cgroup=$word ;; esac; done
[ ! -e {journal} ] || {{ grep --quiet -- "$cgroup" {journal} && echo named || echo "not named: $cgroup"; }} >>{log}
exec {agent} "$@"
"""


@pytest.mark.needs("root")
def test_the_journal_names_an_agent_and_its_cgroup_before_they_are_there(lab: Laboratory) -> None:
    wrapper, log = lab.folder / "storlab-agent", lab.folder / "named"
    wrapper.write_text(NAMED.format(journal=lab.out / "journal.jsonl", log=log, agent=agent_path()))
    wrapper.chmod(0o755)
    lab.environment["STORLAB_AGENT"] = str(wrapper)
    node = f'[nodes.n]\nkind = "netns"\nstack = {DIRECTORY}\n'
    study = directory('on = "n"\ncommand = { argv = ["true"] }', rest=node)
    result = lab.run(study.replace(f"stack = {DIRECTORY}\n", "", 1))
    assert result.status == 0, str(result)
    assert set(log.read_text().splitlines()) == {"named"}


def cgroups_of(controller: int) -> list[Path]:
    found = [Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") for name in below]
    return [path for path in found if path.name.startswith("storlab-") and f".{controller}." in path.name]


@pytest.mark.needs("root")
def test_nothing_of_a_living_run_is_an_orphan_even_while_its_agent_is_dead(lab: Laboratory) -> None:
    process = lab.start_run(WAITING, "--quiet")
    try:
        wait_for(process, lab.sleeps)
        run = lab.identity
        shutil.rmtree(lab.folder / "state")
        assert of(run) == []
        process.send_signal(signal.SIGSTOP)
        kill_agents(lab)
        assert of(run) == []
    finally:
        process.send_signal(signal.SIGCONT)
        kill(process)
        ended(process)
    assert lab.storlab("clean", lab.out).status == 0


@pytest.mark.needs("root")
def test_what_belongs_to_another_user_or_only_looks_like_storlabs_is_no_orphan(lab: Laboratory) -> None:
    run = "20260101-000000-abcd"
    theirs = Path(f"/var/tmp/storlab-{run}-theirs")
    link = Path(f"/var/tmp/storlab-{run}-link")
    other = Path("/var/tmp/storlab-mine")
    victim = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "3600"],
        env={"PATH": os.environ["PATH"], "STORLAB_RUN": run, "STORLAB_NODE": "host"},
    )
    try:
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        link.symlink_to(lab.folder)
        other.mkdir()
        assert wait_until(lambda: Path(f"/proc/{victim.pid}").stat().st_uid == 65534)
        assert of(run) == []
    finally:
        victim.kill()
        victim.wait()
        theirs.rmdir()
        link.unlink()
        other.rmdir()


def test_odd_names_are_nobodys() -> None:
    for name in ("storlab-../x", "storlab-20260101-000000-abcd/../..", "storlab--rf"):
        assert run_of(name) is None


_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)
_WITHOUT_LOG = 2


@pytest.mark.needs("root")
def test_a_run_whose_folder_dies_tears_everything_down_and_says_what_is_not_recorded(
    lab: Laboratory, device: Device
) -> None:
    mounted = lab.folder / "records"
    mounted.mkdir()
    sh("mkfs.ext4", "-q", device.path)
    sh("mount", device.path, str(mounted))
    try:
        wait = f"touch {lab.folder}/ready; until [ -e {lab.folder}/go ]; do sleep 0.05; done"
        two = WAITING.replace("min = 1, max = 1", "min = 2, max = 2")
        study = lab.study(two.replace('["sleep", "3600"]', f'["sh", "-c", "{wait}"]'))
        process = lab.start("run", study, "--out", mounted / "out", "--seed", "1", "--quiet", "--unconfined")
        wait_for(process, lambda: (lab.folder / "ready").exists())
        run = next(path.name for path in lab.scratch.iterdir())
        folder = os.open(mounted, os.O_RDONLY)
        fcntl.ioctl(folder, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
        os.close(folder)
        (lab.folder / "go").touch()
        result = ended(process)
        assert result.status == 1, str(result)
        assert "Traceback" not in result.stderr and "internal error" not in result.stderr
        assert str(mounted / "out") in result.stderr and "everything is torn down" in result.stderr
        assert list(lab.scratch.iterdir()) == [] and not lab.processes()
        for listed in (Path("/proc/self/mountinfo").read_text(), sh("losetup", "--list", "--output", "BACK-FILE")):
            assert run not in listed
    finally:
        sh("umount", str(mounted))


LIMITS = (60, 200, 700)  # MB
COMMANDS = {
    "report": ["report", "run"],
    "page": ["report", "run", "--format", "html"],
    "compare": ["compare", "run", "second"],
    "plan": ["plan", "study.toml"],
    "import": ["import", "csv", "rates.csv", "--value", "rate", "--out", "other"],
    "run": ["run", "study.toml", "--out", "ran", "--seed", "1", "--quiet"],
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("rates.csv").write_text("rate\n1000\n1001\n")
    for out in ("run", "second"):
        assert call("import", "csv", "rates.csv", "--value", "rate", "--out", out).status == 0
    (tmp_path / "scratch").mkdir()
    head = f'schema = 1\ntitle = "A"\nscratch = "{tmp_path / "scratch"}"\n'
    Path("study.toml").write_text(head + directory('command = { argv = ["true"] }'))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("turn", range(len(LIMITS) if ATTACKS else 1))
def test_too_little_memory_is_one_sentence(turn: int, command: str, here: Path) -> None:
    """With one limit for each command, another one the next day; `make attack` has all."""
    limit = LIMITS[(SEED + turn + [*COMMANDS].index(command)) % len(LIMITS)]
    script = f'ulimit -v {limit * 1024}; exec "$@"'
    program = [str(Path(COMMAND[0]).parent / "storlab"), *allowing(COMMANDS[command])]
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *program], capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL
    )
    assert "Traceback" not in ran.stderr and "internal error" not in ran.stderr, (limit, ran.stderr[-1500:])
    if ran.returncode == -signal.SIGABRT:  # Rust itself, in the midst of a library, says so and ends the process
        assert "memory allocation of" in ran.stderr
        assert call("clean", "--yes").status == 0
        return
    assert ran.returncode in (0, 1, 3), (limit, ran.returncode, ran.stderr[-1500:])
    if ran.returncode == 1:
        assert "storlab: " in ran.stderr and "emory" in ran.stderr, ran.stderr
        assert limit > 500 or "storlab: not enough memory" in ran.stderr, ran.stderr
    assert not list(Path("scratch").iterdir())
