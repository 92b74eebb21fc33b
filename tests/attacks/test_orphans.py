"""Whatever is killed, and whenever: what it left on the machine is found by its marks, without a journal."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, kill, needs_root, wait_for, wait_until
from laboratory.studies import LOOPS
from storlab.doctor.runs import without_journal
from storlab.nodes.agent.binary import agent_path
from storlab.nodes.processes import Agents, Controller, cgroup_name
from storlab.run.executor import new_run_id
from storlab.run.recovery.orphans import Orphan, living, orphans, remove
from storlab.run.session import open_session

WAITING = """
primary = "elapsed"
repeat = { until = "max", min = 1, max = 1 }
stack = [
    { layer = "file", size = "32M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]
[probes]
[workload.load]
command = { argv = ["sleep", "3600"] }
"""


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
    for pid, words in lab.commands().items():
        if words[0].endswith("storlab-agent"):
            os.kill(pid, signal.SIGKILL)
    kill(process)
    ended(process)
    assert wait_until(lambda: run not in living(), 20.0)
    return run


@needs_root
def test_all_that_a_killed_run_left_is_found_and_undone_without_its_journal(lab: Laboratory) -> None:
    run = killed_with_its_agents(lab)
    shutil.rmtree(lab.out)
    shutil.rmtree(lab.folder / "state")
    found = of(run)
    assert {"processes.end", "mount.unmount", "loop.detach", "scratch.remove"} <= {orphan.undo for orphan in found}
    (line,) = without_journal(found)
    assert line.status == "warn"
    assert run in line.name
    assert line.remedy == "storlab clean"
    did, failed = remove_all(run)
    assert failed == []
    assert any("unmounted" in each for each in did)
    assert of(run) == []
    assert list(lab.scratch.iterdir()) == []
    assert wait_until(lambda: not lab.processes(), 10.0)


@needs_root
def test_an_agent_that_is_killed_while_a_study_is_planned_leaves_no_cgroup_for_ever(lab: Laboratory) -> None:
    process = lab.start("plan", lab.study(LOOPS))
    wait_for(process, lambda: any(words[0].endswith("storlab-agent") for words in lab.commands().values()))
    before = {path.name for path in cgroups_of(process.pid)}
    for pid, words in lab.commands().items():
        if words[0].endswith("storlab-agent"):
            os.kill(pid, signal.SIGKILL)
    kill(process)
    ended(process)
    for name in before:
        run = name.removeprefix("storlab-").partition(".")[0]
        assert wait_until(partial(_dead, run), 20.0)
        remove_all(run)
    assert cgroups_of(process.pid) == []


@needs_root
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


@needs_root
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
    told = f"the pool {pool}, unless its run is alive in another container"
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


@needs_root
def test_the_journal_names_an_agent_and_its_cgroup_before_they_are_there(lab: Laboratory) -> None:
    wrapper, log = lab.folder / "storlab-agent", lab.folder / "named"
    wrapper.write_text(NAMED.format(journal=lab.out / "journal.jsonl", log=log, agent=agent_path()))
    wrapper.chmod(0o755)
    lab.environment["STORLAB_AGENT"] = str(wrapper)
    stack = '[nodes.n]\nkind = "netns"\nstack = [{ layer = "directory" }]\n'
    study = (
        WAITING.partition("stack")[0] + '[probes]\n[workload.load]\non = "n"\ncommand = { argv = ["true"] }\n' + stack
    )
    result = lab.run(study)
    assert result.status == 0, str(result)
    assert set(log.read_text().splitlines()) == {"named"}


def cgroups_of(controller: int) -> list[Path]:
    found = [Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") for name in below]
    return [path for path in found if path.name.startswith("storlab-") and f".{controller}." in path.name]


@needs_root
def test_nothing_of_a_living_run_is_an_orphan_even_while_its_agent_is_dead(lab: Laboratory) -> None:
    process = lab.start_run(WAITING, "--quiet")
    try:
        wait_for(process, lab.sleeps)
        run = lab.identity
        shutil.rmtree(lab.folder / "state")
        assert of(run) == []
        process.send_signal(signal.SIGSTOP)
        for pid, words in lab.commands().items():
            if words[0].endswith("storlab-agent"):
                os.kill(pid, signal.SIGKILL)
        assert of(run) == []
    finally:
        process.send_signal(signal.SIGCONT)
        kill(process)
        ended(process)
    assert lab.storlab("clean", lab.out).status == 0


@needs_root
def test_what_a_run_left_a_moment_ago_is_left_to_who_takes_care_of_it(lab: Laboratory) -> None:
    run = killed_with_its_agents(lab)
    assert of(run)
    assert of(run, soon=3600.0) == []
    assert lab.storlab("clean", lab.out).status == 0
    lab_leftovers = [each for each in lab.leftovers() if "link" not in each]
    assert lab_leftovers == []


@needs_root
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


@pytest.mark.parametrize("name", ["storlab-../x", "storlab-20260101-000000-abcd/../..", "storlab--rf"])
def test_odd_names_are_nobodys(tmp_path: Path, name: str) -> None:
    from storlab.nodes.undo import run_of

    assert run_of(name) is None
