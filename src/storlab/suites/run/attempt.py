"""One script in one guest: started, watched, ended at its time-out if it hangs, judged."""

from __future__ import annotations

import asyncio
import posixpath
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storlab.base.errors import CommandFailed, NodeError, NodeLost, StorlabError, TooMuch
from storlab.nodes.process import Exit, Process
from storlab.run.observer import Interrupts
from storlab.suites.adapters.base import Adapter
from storlab.suites.ktap import printed_in
from storlab.suites.model import Attempt, Group, Outcome, Role, Script
from storlab.suites.places.place import GuestLost, Place, SuiteGuest, loss_of
from storlab.suites.run.hold import Hold
from storlab.suites.run.output import MOST, KeptFolder, ScriptOutput, keep_folders
from storlab.suites.run.record import Record

_IDLE = 0.01  # share of one CPU: what uses less does not work but waits
_REQUESTS = 32  # at all disks between two looks: a pool that nobody uses makes a few, by its multihost and txg threads
_USAGE = re.compile(r"^usage_usec (\d{1,18})$", re.MULTILINE)
_DISK = re.compile(r"^ *\d+ +\d+ (?!loop|ram|zd|dm-)\S+ (\d{1,18}) \d+ \d+ \d+ (\d{1,18}) ", re.MULTILINE)
# ZFS's own assertions stop a thread and not the kernel: whoever waits for it then hangs (spl_panic in spl-err.c).
_ASSERTION = re.compile(
    r"\] (?P<what>(?:VERIFY|ASSERT|PANIC)\w*[ :(][^\n]{0,300})\n(?:[^\n]{0,20}\] )?PANIC at (?P<where>[^\n]{1,200})"
)
_BUG = re.compile(r"\] (?P<what>(?:BUG: |kernel BUG at |Oops: |general protection fault)[^\n]{1,200})")


@dataclass(frozen=True)
class Work:
    """What a script, or the kernel for it, has done so far: seconds of CPU, requests at disks."""

    cpu: float = 0.0
    requests: int = 0

    def idle_since(self, last: Work, seconds: float) -> bool:
        """Whether nothing worth mentioning was done in the time between two looks."""
        return self.cpu - last.cpu < _IDLE * seconds and self.requests - last.requests < _REQUESTS


def parse_work(cpu_stat: str, diskstats: str) -> Work:
    """By a cgroup's ``cpu.stat`` and ``/proc/diskstats``; devices that stand on others are not counted."""
    usage = _USAGE.search(cpu_stat)
    requests = sum(int(read) + int(written) for read, written in _DISK.findall(diskstats))
    return Work(int(usage[1]) / 1e6 if usage else 0.0, requests)


def kernel_complaint(log: str) -> str:
    """What the kernel's log says of a failed assertion of ZFS or a bug; empty if it says nothing."""
    if (failed := _ASSERTION.search(log)) is not None:
        return f"ZFS failed an assertion: {failed['what'].strip()}, in {failed['where'].strip()}"
    bug = _BUG.search(log)
    return f"the kernel's log has: {bug['what'].strip()}" if bug else ""


GRACE = 10.0  # s from TERM to KILL: tests of performance end their loads first
_DEAD = 20.0  # s after KILL; what is not gone by then hangs in the kernel
_EVIDENCE = 30.0  # s
EVIDENCE = "killed.txt"
MEASURES = "perf"
"""The tag of groups whose tests measure."""
_MOST_KEPT = 16 * 1024**2  # bytes of a file
_LOOKS = 4  # at a script, within its time-out
# What a script that is killed was doing: its processes, the kernel stacks of all tasks, what the kernels said last.
_COLLECT = """
for p in $(cat "$1/cgroup.procs"); do
    echo "== $p $(tr '\\0' ' ' < "/proc/$p/cmdline")"
    grep -E '^(State|PPid)' "/proc/$p/status"
    cat "/proc/$p/stack"
done
echo "== all tasks that wait in the kernel and can't be interrupted"
for t in $(grep -lE '\\) D ' /proc/[0-9]*/stat); do
    t=${t%/stat}
    echo "-- ${t#/proc/} $(cat "$t/comm")"
    cat "$t/stack"
done
echo "== stacks of all tasks"
grep -s "" /proc/[0-9]*/comm /proc/[0-9]*/task/[0-9]*/stack
echo "== dmesg"
dmesg | tail -n 200
echo "== /proc/spl/kstat/zfs/dbgmsg"
tail -n 200 /proc/spl/kstat/zfs/dbgmsg
"""


@dataclass(frozen=True)
class Terms:
    """What holds for all groups of a run. ``scale``: of time-outs; ``None``: as measured in each guest."""

    place: Place
    record: Record
    interrupts: Interrupts
    scale: float | None = None
    retries: int = 0
    hold: Hold | None = None

    @property
    def adapter(self) -> Adapter:
        return self.place.adapter

    @property
    def stops(self) -> bool:
        return self.interrupts.finish or bool(self.record.stop)


@dataclass(frozen=True)
class Running:
    """A guest in which scripts are run on these terms."""

    terms: Terms
    guest: SuiteGuest

    @property
    def scale(self) -> float:
        return self.guest.scale if self.terms.scale is None else self.terms.scale

    @property
    def held(self) -> float:
        """Seconds for which its user had a test held: none of a test's own."""
        return self.terms.hold.seconds if self.terms.hold is not None else 0.0

    def attempt(
        self, group: Group, script: Script, role: Role, outcome: Outcome, started: datetime, elapsed: float, **more: Any
    ) -> Attempt:
        """What came of a script that ran here."""
        return Attempt(
            group.name,
            script.path,
            role,
            outcome,
            started,
            max(elapsed, 0.0),
            user=script.user or self.terms.adapter.runner,
            identifier=group.identifier,
            limit=group.timeout,
            scale=self.scale,
            guest=self.guest.name,
            console=self.guest.console,
            **more,
        )


@dataclass
class _Followed:
    """A script that has come to its end, or to its time-out."""

    ended: Exit | None
    reason: str = ""
    killed: bool = False


async def run_script(running: Running, group: Group, script: Script, role: Role, place: str, number: int) -> Attempt:
    """Run a script to its end. ``place``: the folder for its output, below the run's.

    Raises ``GuestLost`` with the guest's end, or if not even KILL ended it; its output is kept all the same.
    """
    guest, terms = running.guest, running.terms
    folder = terms.record.folder / place
    launch = terms.adapter.launch(script, guest.variables)
    began, started, held = time.monotonic(), datetime.now(UTC), running.held
    kept: Sequence[KeptFolder] = ()
    with ScriptOutput(folder, terms.record.printed) as output:
        try:
            process = await guest.node.start(
                launch.argv,
                env=launch.env,
                cwd=launch.cwd,
                on_output=output.listener("stdout"),
                on_stderr=output.listener("stderr"),
                first_output=MOST if terms.record.printed is None else None,  # whoever looks on sees all
                keep_survivors=True,
            )
            try:
                async with terms.hold.watching(guest, script.path) if terms.hold is not None else nullcontext():
                    followed = await _follow(running, group, process, output, folder)
                for path in launch.keep:
                    await _fetch(guest, path, folder)
                kept = await keep_folders(guest.node, launch, folder)
            except GuestLost:
                raise
            except BaseException:
                if guest.here:  # it must not run on while what it works on is torn down; a guest takes it along
                    if process.cgroup is not None:
                        guest.kept[process.cgroup] = script.path
                    await process.end()
                raise
        except CommandFailed as error:  # it could not be executed
            followed = _Followed(None, str(error))
        except (NodeLost, NodeError) as error:
            raise loss_of(guest.node, terms.place.session, str(error)) from None
    ended = followed.ended
    if ended is not None and ended.survivors and process.cgroup is not None and not followed.killed:
        guest.kept[process.cgroup] = script.path
    outcome, why = Outcome.KILLED, ""
    if not followed.killed:
        outcome, why = terms.adapter.judge(script, ended.code if ended else None, lambda: printed_in(folder))
    measures = role == "test" and MEASURES in group.tags and bool(launch.evidence)
    if measures and outcome is Outcome.PASS and not any(each.has(launch.evidence) for each in kept):
        folders = " or ".join(launch.folders)
        outcome, why = Outcome.FAIL, f"it passed, but measured nothing: it left no {launch.evidence} in {folders}"
    reason = followed.reason or why
    if not reason and ended is not None and ended.signal:
        reason = f"it was ended by {ended.signal}"
    return running.attempt(
        group,
        script,
        role,
        outcome,
        started,
        (ended.elapsed if ended else time.monotonic() - began) - (running.held - held),
        number=number,
        code=ended.code if ended else None,
        signal=ended.signal if ended else None,
        cpu=ended.cpu_user + ended.cpu_system if ended else 0.0,
        reason=reason,
        folder=place,
        dropped=output.dropped + (ended.dropped if ended else 0) + sum(each.dropped for each in kept),
        kept=[each.name for each in kept],
    )


async def _fetch(guest: SuiteGuest, path: str, folder: Path) -> None:
    try:
        data = await guest.node.read(path, _MOST_KEPT)
    except FileNotFoundError:
        return
    except TooMuch as error:
        data = f"{error}\n".encode()
    (folder / posixpath.basename(path)).write_bytes(data)


async def _follow(running: Running, group: Group, process: Process, output: ScriptOutput, folder: Path) -> _Followed:
    """Until it ends; at its time-out it is ended, unless it still works and a slow guest gives it longer."""
    reason = await _until_time_out(running, group.timeout, process, output)
    if reason is None:
        return _Followed(await process.wait())
    cause = await _collect(running.guest, process, folder / EVIDENCE)
    says = f"; {cause}" if cause else ""
    await process.stop(GRACE)
    if not await _rests(process, GRACE + _DEAD):
        raise GuestLost(f"{reason}; not even KILL ended it, {running.guest.given_up}{says}", hung=True)
    ended = await process.wait()
    if process.cgroup is not None and await _populated(running.guest, process.cgroup):
        raise GuestLost(
            f"{reason}; not even KILL ended all of its processes, {running.guest.given_up}{says}", hung=True
        )
    by = "" if ended.stopped_by == "TERM" else f", and did not end for TERM within {GRACE:g} s"
    return _Followed(ended, reason + by + says, killed=True)


async def _until_time_out(
    running: Running, timeout: float | None, process: Process, output: ScriptOutput
) -> str | None:
    """``None`` once it has ended by itself; else why it is to be ended."""
    if timeout is None:
        await process.rest()
        return None
    began, held = time.monotonic(), running.held
    look = timeout * min(running.scale, 1) / _LOOKS
    last, printed = Work(), output.last
    while True:
        before = time.monotonic()
        if await _rests(process, look):
            return None
        now, spent = time.monotonic() - began - (running.held - held), time.monotonic() - before
        stat, disks = await running.guest.node.texts(f"{process.cgroup}/cpu.stat", "/proc/diskstats")
        now_done = parse_work(stat or "", disks or "")
        idle = now_done.idle_since(last, spent) and output.last == printed
        last, printed = now_done, output.last
        if now >= timeout * running.scale - 0.001:
            longer = f", {running.scale:.1f} times the {timeout:g} s of its runfile" if running.scale > 1 else ""
            return f"it took longer than {round(timeout * running.scale, 1):g} s{longer}"
        if now >= timeout - 0.001 and idle:
            return (
                f"it took longer than {timeout:g} s, and for the last {spent:.0f} s it neither printed nor computed, "
                "and no disk worked"
            )


async def _rests(process: Process, seconds: float) -> bool:
    """Whether it ends within so long. Raises ``NodeLost`` if its node is lost meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            await process.rest()
    except TimeoutError:
        return False
    if process.lost is not None:
        raise NodeLost(process.lost)
    return True


async def _populated(guest: SuiteGuest, cgroup: str) -> bool:
    try:
        return "populated 1" in await guest.node.read_text(f"{cgroup}/cgroup.events")
    except FileNotFoundError:
        return False


async def _collect(guest: SuiteGuest, process: Process, path: Path) -> str:
    """Keep what tells why a script did not end, as far as the guest can still say; the cause, if it is plain."""
    try:
        found = await guest.node.run(
            ["sh", "-c", _COLLECT, "sh", process.cgroup or "/nowhere"], check=False, timeout=_EVIDENCE
        )
    except NodeLost:
        raise
    except StorlabError as error:
        path.write_text(f"nothing could be collected: {error}\n", "utf-8")
        return ""
    path.write_bytes(found.stdout)
    return kernel_complaint(found.stdout.decode(errors="replace"))
