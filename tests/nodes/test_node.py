"""``Node`` against the real agent, and what is said of a command that failed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TypeVar

import pytest

from laboratory import wait_until
from storlab.base.errors import CommandFailed, DiskFull, MissingTool, NodeError, NodeLost, TimedOut
from storlab.base.waiting import all_of, reaped, to_its_end
from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node
from storlab.nodes.process import Exit
from storlab.nodes.processes import end_processes

T = TypeVar("T")


def on_node(work: Callable[[Node], Awaitable[T]]) -> T:
    """What ``work`` gives on a node of its own; nothing takes longer than half a minute."""

    cgroup = f"storlab-test-{uuid.uuid4()}"

    async def run() -> T:
        try:
            async with asyncio.timeout(30), local_node("n", cgroup=cgroup, environment={"COLOUR": "red"}) as node:
                return await work(node)
        finally:
            if any(cgroup in below for _, below, _ in os.walk("/sys/fs/cgroup")):  # an agent that was killed leaves it
                async with local_node("other") as other:
                    await end_processes(other, "none", "none", cgroup)

    return asyncio.run(run())


def of_a_node(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is given a node of its own."""

    @wraps(test)
    def run(**fixtures: object) -> None:
        on_node(lambda node: test(node, **fixtures))

    _, *others = signature(test).parameters.values()
    run.__signature__ = signature(test).replace(parameters=others, return_annotation=None)  # type: ignore[attr-defined]
    return run


def alive(pid: int) -> bool:
    """Whether there is such a process, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_command_gives_its_output_and_how_it_ended_but_nothing_beyond_what_is_wanted() -> None:
    ended = on_node(lambda node: node.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False))
    assert (ended.stdout, ended.stderr, ended.code, ended.ok) == (b"out\n", b"err\n", 3, False)
    assert 0 < ended.elapsed < 30
    pieces: list[bytes] = []
    command = ["sh", "-c", "head -c 1M /dev/zero; echo error >&2"]
    ended = on_node(lambda node: node.run(command, first_output=5, on_output=lambda data, at: pieces.append(data)))
    assert sorted(b"".join(pieces)) == sorted(b"\0" * 5 + b"error") and ended.dropped == 1024**2 - 5 + 1 and ended.ok


@of_a_node
async def test_a_command_whose_output_nobody_can_take_is_killed(node: Node) -> None:
    def full(data: bytes, at: float) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    command = await node.start(["sh", "-c", "sleep 0.2; echo something; exec sleep 3600"], on_output=full)
    with pytest.raises(OSError, match="No space left"):
        await command.wait()
    assert await asyncio.to_thread(wait_until, lambda: not alive(command.pid or 0), 10.0)


def test_a_command_that_fails_says_which_where_how_and_the_line_that_says_what_was_wrong() -> None:
    with pytest.raises(CommandFailed, match=r"^node n: sh ended with status 3: second$") as error:
        on_node(lambda node: node.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"]))
    assert error.value.detail.startswith("$ sh -c 'echo first") and "first\nsecond" in error.value.detail
    with pytest.raises(CommandFailed, match="node n: no-such-program can't be run: no such program"):
        on_node(lambda node: node.run(["no-such-program"]))
    with pytest.raises(DiskFull, match="No space left on device"):
        on_node(lambda node: node.run(["dd", "if=/dev/zero", "of=/dev/full", "bs=1", "count=1"]))
    script = "trap '' TERM; while :; do sleep 0.05; done"
    with pytest.raises(TimedOut, match=r"stopped at its time-out after 0\.\d s \(by KILL\)"):
        on_node(lambda node: node.run(["sh", "-c", script], timeout=0.2, grace=0.1))
    usage = "Filesystem must be larger than 300MB.\nUsage: mkfs.xfs\n<num> is xxx (512 byte blocks).\n"
    for stderr, told in (
        ("mount: /mnt: special device /dev/x does not exist.\n", "special device /dev/x does not exist."),
        ("warming up\nwrite failed\n", "write failed"),
        (usage, "larger than 300MB."),
        ("", "no output"),
    ):
        failed = Exit(("mkfs.xfs",), 1, None, False, None, None, 0.0, 0.1, 0.0, 0.0, 0, 0, b"", stderr.encode())
        with pytest.raises(CommandFailed, match=r"node here: mkfs\.xfs ended with status 1: ") as error:
            failed.check("here")
        assert str(error.value).endswith(told)


@of_a_node
async def test_standard_input_environment_and_folder_reach_the_command(node: Node, tmp_path: Path) -> None:
    for data in (os.urandom(1_000_000), b""):
        assert (await node.run(["cat"], stdin=data)).stdout == data
    said = await node.run(["sh", "-c", "echo $COLOUR $SIZE; pwd"], env={"SIZE": "xl"}, cwd=str(tmp_path))
    assert said.stdout.decode() == f"red xl\n{tmp_path}\n"


@of_a_node
async def test_files_are_written_and_read_in_any_size_and_large_output_comes_in_order(
    node: Node, tmp_path: Path
) -> None:
    for size in (0, 1, 256 * 1024, 256 * 1024 + 1, 3_000_000):
        data = os.urandom(size)
        await node.write(str(tmp_path / "file"), data, mode=0o600)
        assert await node.read(str(tmp_path / "file")) == data
    await node.write(str(tmp_path / "file"), b"short")
    assert await node.read_text(str(tmp_path / "file")) == "short"
    ended = await node.run(["seq", "1000000"])
    assert ended.stdout == b"".join(b"%d\n" % number for number in range(1, 1_000_001))


@of_a_node
async def test_of_a_file_that_is_sent_all_but_its_holes_is_written_where_it_was(node: Node, tmp_path: Path) -> None:
    source, target, data = tmp_path / "source", tmp_path / "target", os.urandom(300_000)
    target.write_bytes(b"\xff" * (5 << 20))
    with source.open("wb") as file:
        os.pwrite(file.fileno(), data, 0)
        os.pwrite(file.fileno(), data, 4 << 20)
    await node.fill(str(target), source)
    there = target.read_bytes()
    assert there[: len(data)] == there[4 << 20 :][: len(data)] == data
    assert there[1 << 20 : 4 << 20] == b"\xff" * (3 << 20)


@of_a_node
async def test_what_can_not_be_read_or_written_is_told_with_its_path(node: Node, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        await node.read(str(tmp_path / "missing"))
    with pytest.raises(NodeError, match=str(tmp_path)):
        await node.read(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="missing"):
        await node.write(str(tmp_path / "missing" / "file"), b"")
    with pytest.raises(DiskFull, match="/dev/full"):
        await node.write("/dev/full", b"x")


@of_a_node
async def test_samples_come_at_their_times_until_the_iteration_is_closed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("12")
    paths = [str(tmp_path / name) for name in ("counter", "missing")]
    async with aclosing(node.sample(paths, 0.02)) as samples:
        seen = [await anext(samples) for _ in range(5)]
    assert (await node.output("echo", "still there")) == "still there\n"
    assert [[*sample.contents] for sample in seen] == [[b"12", None]] * 5
    times = [sample.t for sample in seen]
    assert times == sorted(times) and times[-1] - times[0] >= 0.07


@of_a_node
async def test_facts_name_the_machine_and_its_tools_and_clocks_agree_within_their_errors(node: Node) -> None:
    facts = await node.facts({"sh": ["true"], "nothing": ["no-such-program", "--version"]})
    assert (facts["kernel"]["release"], facts["uid"]) == (os.uname().release, os.geteuid())
    assert facts["tools"]["nothing"] is None
    clock = await node.clock()
    assert abs(clock.offset) <= clock.error + 1e-4


@of_a_node
async def test_a_command_starts_at_the_agreed_instant_and_never_before(node: Node) -> None:
    at = time.monotonic() + 0.2
    ended = await (await node.start(["true"], start_at=at)).wait()
    assert ended.start >= at and ended.late == pytest.approx(ended.start - at, abs=1e-3)


@of_a_node
async def test_a_cancelled_caller_leaves_no_command_running(node: Node) -> None:
    process = await node.start(["sleep", "3600"])
    assert process.pid is not None
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and not alive(process.pid)


@pytest.mark.parametrize("script", ["exec cat /dev/zero", "setsid sleep 20 & exec cat /dev/zero"])
async def test_a_killed_program_has_ended_whatever_nobody_read_of_it_and_whoever_holds_it_open(script: str) -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.read(1)
    while not process.stdout._paused:  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    process.kill()
    async with asyncio.timeout(10):
        await reaped(process)


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.003, 0.01])
@of_a_node
async def test_a_command_that_is_cancelled_while_it_starts_has_ended_before_the_caller_goes_on(
    node: Node, tmp_path: Path, moment: float
) -> None:
    """Else what it sets up would appear after everything was torn down."""
    trace = tmp_path / "trace"
    script = f"echo begun >> {trace}; sleep 3600; echo too late >> {trace}"
    running = asyncio.create_task(node.run(["sh", "-c", script]))
    await asyncio.sleep(moment)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    left = await node.run(["pgrep", "--full", str(trace)], check=False)
    assert left.stdout == b"", "it still runs"


LAST_WORDS = "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


@of_a_node
async def test_a_command_that_is_stopped_has_its_last_word_but_no_more_time_than_it_gets(node: Node) -> None:
    for script, time_for_it, *said in ((LAST_WORDS, 10.0, b"begun\nended\n", None), (DEAF, 0.3, b"begun\n", "SIGKILL")):
        process = await node.start(["sh", "-c", script])
        await process.first_line()
        ended = await process.last_word(time_for_it)
        assert [ended.stdout, ended.signal] == said


@of_a_node
async def test_what_prints_no_line_but_more_and_more_is_not_waited_for(node: Node) -> None:
    process = await node.start(["sh", "-c", "head -c 100k /dev/zero; trap '' TERM; while :; do sleep 0.05; done"])
    assert await process.first_line() is None and (await process.last_word(0.0)).signal == "SIGKILL"


@of_a_node
async def test_who_is_cancelled_does_not_wait_for_a_last_word(node: Node) -> None:
    process = await node.start(["sh", "-c", DEAF])
    await process.first_line()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await process.last_word(60.0)
    assert process.ended is not None and time.monotonic() - began < 10.0


@of_a_node
async def test_an_agent_that_is_killed_is_noticed_at_once_by_all_that_wait(node: Node) -> None:
    assert node.pid is not None
    processes = [await node.start(["sleep", "3600"]) for _ in range(3)]
    os.kill(node.pid, signal.SIGKILL)
    ended = await asyncio.gather(*(process.wait() for process in processes), return_exceptions=True)
    assert [type(error) for error in ended] == [NodeLost] * 3
    with pytest.raises(NodeLost, match="node n: the stream to its agent closed"):
        await node.run(["true"])
    pids = [process.pid for process in processes if process.pid]
    assert await asyncio.to_thread(wait_until, lambda: not any(map(alive, pids)))


def test_leaving_a_node_ends_all_that_runs_on_it_and_a_missing_agent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(node: Node) -> int:
        process = await node.start(["sh", "-c", "setsid sleep 3600 & sleep 3600"])
        assert process.pid is not None
        return process.pid

    assert not alive(on_node(work))
    monkeypatch.setenv("STORLAB_AGENT", "/nowhere/storlab-agent")
    with pytest.raises(MissingTool, match="/nowhere/storlab-agent"):
        on_node(lambda node: node.run(["true"]))


@pytest.mark.parametrize("says", ["exit 1", "exec cat /dev/zero", "echo hello; exec sleep 3600"])
def test_what_is_no_agent_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    pretender = tmp_path / "agent"
    pretender.write_text(f"#!/bin/sh\n{says}\n")
    pretender.chmod(0o755)
    monkeypatch.setenv("STORLAB_AGENT", str(pretender))
    monkeypatch.setattr("storlab.nodes.agents.HELLO_TIMEOUT", 0.5)
    monkeypatch.setattr("storlab.nodes.agents._EXIT_TIMEOUT", 0.5)
    with pytest.raises(NodeError, match=r"^node n: "):
        on_node(lambda node: node.run(["true"]))


def test_work_that_must_come_to_its_end_does_though_its_caller_is_cancelled_twice() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0.1)
        done.append(True)

    async def run() -> None:
        task = asyncio.create_task(to_its_end(work()))
        for _ in range(2):
            await asyncio.sleep(0.02)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert done == [True]


def test_of_several_that_are_waited_for_the_first_failure_is_told_once_all_are_at_rest() -> None:
    trace = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)
            trace.append("slow is at rest")

    async def failing() -> None:
        await asyncio.sleep(0.01)
        raise NodeLost("first")

    async def run() -> None:
        with pytest.raises(NodeLost, match="first"):
            await all_of(slow(), failing())
        trace.append("told")

    asyncio.run(run())
    assert trace == ["slow is at rest", "told"]
