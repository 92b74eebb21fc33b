"""``storlab trace --locks`` and ``--profile``: what is refused and shown, and the files that they write.

Planted waits are counted one by one, as bpftrace counts them at the same time.
"""

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, Group

from laboratory.block import with_tracefs
from laboratory.bpftrace import bpftraced
from laboratory.samples import sample
from probes.test_profile import seen
from storlab.cli.trace.child import Interruptible, tracing
from storlab.cli.trace.profile import functions
from study.program import call, program

CASES = Path(__file__).parent.parent / "probes" / "cases"
PIPE = ("anon_pipe_write", "pipe_write")  # since 6.15, and before
FILE = ("shmem_file_write_iter", "generic_file_write_iter")  # since 6.6, and before
MUTEX, WRITE = "32", "4"
"""Flags of locks, as bpftrace has them."""

root = pytest.mark.needs("root")


def planted(folder: Path, *words: object) -> list[str]:
    """A command that the kernel calls ``planted`` from its first instruction on: so its file is called."""
    link = folder / "planted"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(sys.executable).resolve())
    return [str(link), str(CASES / "planted_locks.py"), *map(str, words)]


def traced(*arguments: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    ran = program("trace", "--locks", "--json", *arguments)
    return json.loads(ran.stdout), ran


def own(document: dict[str, Any], lock: str, callers: tuple[str, ...] = ()) -> dict[str, float]:
    """What the command waited for locks of this type, of these callers or of all."""
    found: Counter[str] = Counter()
    for each in document["callers"]:
        if each["lock"] == lock and (not callers or each["caller"] in callers):
            found.update(each["command"])
    return dict(found)


@root
def test_each_planted_wait_is_counted_once(tmp_path: Path) -> None:
    document, ran = traced("--", *planted(tmp_path, "pipe", 7, "file", 5, "futex", 3))
    assert ran.returncode == 0, ran.stderr
    pipe, file = own(document, "mutex", PIPE), own(document, "rwsem-write", FILE)
    assert (pipe["waits"], pipe["slept"]) == (7, 7), "a mutex reports that it spins, and that it sleeps"
    assert (file["waits"], file["slept"]) == (5, 5)
    # The first of them waited for all that came after it.
    assert pipe["time"] > 7 * 6 / 2 * 0.025 and file["time"] > 5 * 4 / 2 * 0.025
    locks = {each["caller"]: each["locks"] for each in document["callers"] if each["lock"] in ("mutex", "rwsem-write")}
    assert any(locks.get(name, 0) >= 1 for name in PIPE) and any(locks.get(name, 0) >= 1 for name in FILE)
    # A futex is a program's own lock: the kernel has none that its threads wait for, only one that guards its list.
    waiting = [each for each in document["callers"] if "futex" in (each["caller"] or "")]
    assert all(each["lock"] == "spinlock" for each in waiting)
    assert document["lost"] == {"full": 0, "begun": 0, "ends": 0, "locks": 0, "missed": document["lost"]["missed"]}


@root
def test_different_locks_of_one_caller_are_told_apart(tmp_path: Path) -> None:
    document, _ = traced("--", *planted(tmp_path, "pipe", 1, "pipe", 1, "pipe", 1))
    (entry,) = [each for each in document["callers"] if each["caller"] in PIPE and each["lock"] == "mutex"]
    assert entry["locks"] >= 3 and entry["command"]["waits"] == 3
    assert sum(count for *_, count in entry["times"]) == entry["waits"]


@pytest.mark.needs("root", "bpftrace")
@pytest.mark.usefixtures("alone_tracing")
def test_what_bpftrace_counts_at_the_same_time_is_counted_here(tmp_path: Path) -> None:
    with bpftraced(sample(__file__, "../probes/cases/lock_waits.bt"), tmp_path) as theirs:
        document, _ = traced("--", *planted(tmp_path, "pipe", 20, "file", 10))
    waits = theirs["@waits"]
    ours = {MUTEX: own(document, "mutex")["waits"], WRITE: own(document, "rwsem-write")["waits"]}
    lost = sum(number or 0 for number in document["lost"].values())
    for flags, least in ((MUTEX, 20), (WRITE, 10)):
        # Before its program is called ``planted`` the command is a child of Storlab's, which bpftrace leaves out.
        assert least <= waits[flags] <= ours[flags] + lost, (waits, ours)
        assert ours[flags] - waits[flags] <= 2 + lost, (waits, ours)


@pytest.mark.needs("root", "perf")
@pytest.mark.usefixtures("alone_tracing")
def test_perf_lock_has_the_same_waits_in_the_same_run(tmp_path: Path) -> None:
    """By ``perf lock record``: Debian's perf has no ``perf lock contention -b``, as it is built without skeletons."""
    data = str(tmp_path / "perf.data")
    record = ["perf", "lock", "record", "-a", "-o", data, "--", *planted(tmp_path, "pipe", 7, "file", 5)]
    document, ran = traced("--", *with_tracefs("mounted"), *record)
    assert ran.returncode == 0, ran.stderr
    report = subprocess.run(["perf", "lock", "contention", "-i", data], capture_output=True, text=True, check=True)
    table = report.stderr + report.stdout  # 6.1 prints it as an error
    rows = re.findall(r"^ +(\d+) +([\d.]+) ms .* ms +(mutex|rwsem:W) ", table, re.MULTILINE)
    many = {"mutex": 7, "rwsem:W": 5}
    for kind, lock, callers in (("mutex", "mutex", PIPE), ("rwsem:W", "rwsem-write", FILE)):
        # perf and Python may have some more, and another caller as many, of microseconds: the planted are the longest.
        counts = range(many[kind], many[kind] + 4)
        theirs = [float(time) / 1000 for waits, time, of in rows if of == kind and int(waits) in counts]
        ours = own(document, lock, callers)
        assert ours["waits"] in counts, (ours, table)
        assert theirs and ours["time"] == pytest.approx(max(theirs), rel=0.01), (ours, table)


@root
def test_a_table_is_shown_and_a_commands_status_passed_on(tmp_path: Path) -> None:
    ran = program("trace", "--locks", "--", "sh", "-c", "exit 3")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("Waits for locks of the kernel")
    ran = program("trace", "--locks", "--for", "0.2")
    assert ran.returncode == 0 and " waits by " in ran.stdout


@root
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tcp"], "--tcp shows connections, and --locks shows waits for locks: leave one of them out"),
        (["--disk", "vda"], "--disk is of block I/O, and --locks shows waits for locks: leave one of them out"),
        (["--port", "1"], "--port is of connections: it needs --tcp"),
        (["--for", "0"], "--for 0: must be 1 ms or more"),
    ],
)
def test_what_does_not_belong_together_is_refused(arguments: list[str], message: str) -> None:
    ran = program("trace", "--locks", *arguments)
    assert ran.returncode == 2 and message in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--disk", "vda"], "--profile samples CPUs and takes no --disk"),
        (["--interval", "1"], "--profile samples CPUs and takes no --interval"),
        (["--locks"], "--profile samples CPUs and takes no --locks"),
        (["--out", "x.csv"], "is one of .folded, .svg, .png, .json"),
    ],
)
def test_what_does_not_belong_to_it_is_refused(words: list[str], said: str) -> None:
    ended = call("trace", "--profile", *words)
    assert ended.status == 2
    assert said in " ".join(ended.message.split())


def test_functions_stand_in_the_order_of_their_own_time() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(Group(*functions(seen(), 2)))
    shown = out.getvalue().splitlines()
    assert shown[0] == "Where CPUs were   20 samples: 35.0% in the kernel, 15.0% in programs, 50.0% idle"
    assert [line.split()[0] for line in shown[3:5]] == ["zio_execute", "libc.so.6/fill"]
    assert shown[-1] == "… and 1 more; shares are of busy CPU"


@root
def test_a_command_is_sampled_and_its_status_passed_on(tmp_path: Path) -> None:
    work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 5"
    ended = program("trace", "--profile", "--out", "x.folded", "--", "sh", "-c", work, folder=tmp_path)
    assert ended.returncode == 5, ended.stderr
    assert "Where CPUs were" in ended.stderr
    stacks = (tmp_path / "x.folded").read_text().splitlines()
    assert any(line.startswith("sh;") for line in stacks)
    assert all(line.rpartition(" ")[2].isdecimal() for line in stacks)


@root
def test_as_json_shares_are_of_the_samples(tmp_path: Path) -> None:
    ended = program("trace", "--profile", "--json", "--for", "0.5", "--out", "x.svg", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert sum(found["groups"].values()) == found["samples"]
    assert (found["frequency"], found["lost"]) == (99, 0)
    assert found["samples"] == pytest.approx(0.5 * 99 * found["cpus"], rel=0.5)
    assert all(0 <= each["self"] <= each["total"] <= 1 for each in found["functions"])
    assert (tmp_path / "x.svg").read_text().startswith("<svg")


DEAF = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
print("begun", flush=True)
time.sleep(60)
"""
"""As a tracer that looks up the names of many functions."""


@pytest.mark.parametrize(("signals", "ends"), [([signal.SIGINT] * 2, True), ([signal.SIGHUP, signal.SIGTERM], False)])
def test_a_second_ctrl_c_does_not_wait_for_names(signals: list[signal.Signals], ends: bool) -> None:
    async def interrupted() -> bool:
        async with tracing([sys.executable, "-c", DEAF], lambda chunk, _: chunk.split()) as tracer:
            work = Interruptible()
            work.tracer = tracer
            assert await tracer.lines() == [b"begun"]
            for number in signals:
                work.signalled(number)
            try:
                async with asyncio.timeout(5 if ends else 0.3):
                    return await tracer.lines() == []
            except TimeoutError:
                work.signalled(signal.SIGINT)
                return False

    assert asyncio.run(interrupted()) == ends
