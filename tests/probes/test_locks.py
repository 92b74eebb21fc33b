"""Probe ``locks`` on this machine: what it counts while it watches, and why it could not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from storlab.base.programs import agent_path
from storlab.nodes.kinds.local import local_node
from storlab.nodes.needs import Needs, lacks
from storlab.probes.base import Probe, ProbeContext
from storlab.probes.counters import CountersProbe
from storlab.probes.locks.probe import LocksProbe
from storlab.probes.profile import ProfileProbe

from . import HERE, watched

PLANTED = Path(__file__).parent / "cases" / "planted_locks.py"

pytestmark = pytest.mark.needs("root")


def test_it_counts_from_before_a_load_until_after_it(tmp_path: Path) -> None:
    assert asyncio.run(lacking(LocksProbe().needs())) == []
    found = watched(LocksProbe(), tmp_path, sys.executable, str(PLANTED), "pipe", "4", "file", "3").totals()
    pipe = [found.get(f"waits.mutex.{name}", 0) for name in ("anon_pipe_write", "pipe_write")]
    file = [found.get(f"waits.rwsem-write.{name}", 0) for name in ("shmem_file_write_iter", "generic_file_write_iter")]
    assert sum(pipe) >= 4 and sum(file) >= 3, found
    assert found["waits"] >= 7 and found["wait-time"] > 0.1
    assert found["mutex.wait.p99"] > 0.01


@pytest.mark.parametrize("probe", [LocksProbe(), ProfileProbe(), CountersProbe()])
def test_a_trial_that_is_cancelled_waits_for_no_last_word(probe: Probe, tmp_path: Path) -> None:
    async def cancelled() -> bytes:
        async with asyncio.timeout(10), local_node("here") as node:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1), probe.watch(ProbeContext(node, tmp_path, HERE)):
                    await asyncio.sleep(60)
            left = ["pgrep", "--full", "--list-full", "--parent", str(node.pid), f" {probe.kind}"]
            return (await node.run(left, check=False)).stdout  # beside the agent's guard

    assert asyncio.run(cancelled()) == b""


async def lacking(needs: Needs) -> list[str]:
    async with local_node("here") as node:
        return [str(each) for each in await lacks(node, needs)]


def test_what_a_program_of_the_agents_says_at_its_check_is_what_a_machine_lacks() -> None:
    (said,) = asyncio.run(lacking(Needs(agent=("nothing",))))
    assert said.startswith("unknown argument")


@pytest.mark.parametrize(
    ("hide", "reason"),
    [
        ("mount -t tmpfs none /sys/kernel/btf", "lock waits can't be traced: this kernel has no BTF"),
        ("mount --bind /dev/null /proc/kallsyms", "the kernel shows no addresses of its functions"),
    ],
)
def test_a_kernel_that_lacks_what_it_takes_is_refused_with_the_reason(hide: str, reason: str) -> None:
    script = f'{hide} && exec "$0" locks --check'
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", script, agent_path()], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"storlab-agent: {reason}")
