"""``storlab trace`` on a loop device: how it begins and ends, on terminals and without, and that nothing goes on."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from laboratory import wait_until
from laboratory.block import TRACEFS, LoopDisk, issue, loop_disk, with_tracefs
from study.program import PROGRAM

from .test_trace_on_a_disk import SIZE, dd, storlab

LOST = "storlab: the tracer ended before it reported what it had counted\n"

pytestmark = pytest.mark.needs("root")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path_factory.mktemp("trace") / "disk.img", SIZE) as disk:
        yield disk


@pytest.mark.parametrize(
    ("command", "status"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["/no/such"], 127), (["/etc/passwd"], 126)],
)
def test_the_commands_status_is_passed_on(command: list[str], status: int, disk: LoopDisk) -> None:
    assert storlab("--disk", disk.name, "--", *command).returncode == status


def test_the_commands_input_and_output_are_its_own_and_what_the_caller_closed_leads_nowhere(disk: LoopDisk) -> None:
    argv = [str(PROGRAM), "trace", "--disk", disk.name, "--", "tr", "a-z", "A-Z"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, input="loud")
    assert (ran.returncode, ran.stdout) == (0, "LOUD")
    for stream in ("<", "2>"):
        script = f"{PROGRAM} trace --disk {disk.name} --for 50ms {stream}&-"
        ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, "fault" in ran.stderr) == (0, False), (stream, ran.stderr)


def test_what_can_not_be_shown_is_told_in_one_sentence(disk: LoopDisk) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [str(PROGRAM), "trace", "--disk", disk.name, "--for", "50ms"]
        ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ran.returncode == 1
    told = "cannot write to standard output: No space left on device; what was to be shown there is lost"
    assert ran.stderr.splitlines()[1:] == [f"storlab: {told}"]


def test_a_terminal_of_80_columns_has_letters_for_flags_and_says_what_they_mean(disk: LoopDisk, tmp_path: Path) -> None:
    with terminal("--disk", disk.name, "--op", "write", "--events") as (process, read):
        seen = read("ALGN")
        issue(disk, [("write", 0, 4096)] * 3, tmp_path)
        seen += read(" fio ")
        process.send_signal(signal.SIGINT)
        read("no event was dropped")
    assert "flags: p preflush, f fua, s sync" in seen
    assert max(map(len, re.findall(r"(?m)^loop.*", seen))) <= 80


def test_without_a_terminal_tables_come_each_interval(disk: LoopDisk) -> None:
    with tracing("--disk", disk.name, "--op", "write", "--interval", "100ms", "--for", "2s") as process:
        subprocess.run(dd(disk.path, 4096, 1), check=True)
        output, _ = process.communicate(timeout=30)
    assert output.count("s since the start\n") > 3 and output.count("Total I/Os: 1\n") > 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_prints_what_there_is(number: signal.Signals, disk: LoopDisk, tmp_path: Path) -> None:
    with tracing("--disk", disk.name, "--op", "write") as process:
        issue(disk, [("write", 0, 4096)] * 3, tmp_path)
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Total I/Os: 3\n" in output


def test_what_nohup_starts_outlives_its_terminal(disk: LoopDisk, tmp_path: Path) -> None:
    with tracing("--disk", disk.name, "--op", "write", wrapper=["nohup"]) as process:
        process.send_signal(signal.SIGHUP)
        issue(disk, [("write", 0, 4096)] * 3, tmp_path)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert "Total I/Os: 3\n" in output


def test_a_signal_ends_the_command_and_then_the_tracing(disk: LoopDisk) -> None:
    argv = [str(PROGRAM), "trace", "--disk", disk.name, "--", "sh", "-c", "echo running; exec sleep 60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        process.terminate()
        _, message = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "No request was seen." in message


def test_a_tracer_that_was_killed_is_told_and_none_outlives_a_storlab_that_was(disk: LoopDisk) -> None:
    with tracing("--disk", disk.name) as process:
        tracer = first_child(process)
        process.kill()
        process.communicate(timeout=30)
    assert wait_until(lambda: not Path(f"/proc/{tracer}").exists(), 10)
    with tracing("--disk", disk.name) as process:
        os.kill(first_child(process), signal.SIGKILL)
        _, message = process.communicate(timeout=30)
    assert (process.returncode, message) == (1, LOST)


def test_a_command_whose_tracer_was_killed_has_its_own_status_all_the_same(disk: LoopDisk) -> None:
    argv = [str(PROGRAM), "trace", "--disk", disk.name, "--", "sh", "-c", "echo running; read line; exit 5"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        os.kill(first_child(process), signal.SIGKILL)
        _, message = process.communicate("go on\n", timeout=30)
    assert (process.returncode, message) == (5, LOST)


def test_a_reader_that_has_seen_enough_is_no_fault_and_the_file_is_written(disk: LoopDisk, tmp_path: Path) -> None:
    script = f"{PROGRAM} trace --disk {disk.name} --interval 50ms --for 20s | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    out = tmp_path / "trace.json"
    script = f"{PROGRAM} trace --disk {disk.name} --interval 50ms --out {out} | head -1"
    subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=True)
    assert json.loads(out.read_bytes()) == {"disks": {}}


def test_a_terminal_that_closes_leaves_the_file_to_be_written(disk: LoopDisk, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    ours, theirs = pty.openpty()
    argv = [str(PROGRAM), "trace", "--disk", disk.name, "--interval", "50ms", "--out", str(out)]
    with subprocess.Popen(argv, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        try:
            os.read(ours, 1)  # it has begun
            os.close(ours)
            process.terminate()  # as by the kernel, which tells those in the foreground
            process.wait(timeout=60)
        finally:
            process.kill()
    assert json.loads(out.read_bytes()) == {"disks": {}}


def test_an_unknown_disk_or_operation_is_named() -> None:
    for arguments, says in ((["--disk", "nope"], '"nope"'), (["--op", "wrote"], '"wrote" is no operation')):
        ran = storlab(*arguments, "--for", "1s")
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert says in ran.stderr


@pytest.mark.parametrize("tracefs", list(TRACEFS))
def test_without_privileges_there_is_one_sentence(tracefs: str) -> None:
    argv = [*with_tracefs(tracefs), "setpriv", "--bounding-set=-all", str(PROGRAM), "trace", "--for", "1s"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr.startswith("storlab: block I/O can't be traced: this process may not load eBPF programs: ")
    assert ran.stderr.count("\n") == 1


def test_a_terminal_shows_it_live_and_then_the_tables(disk: LoopDisk, tmp_path: Path) -> None:
    with terminal("--disk", disk.name, "--op", "write", "--interval", "100ms") as (process, read):
        seen = read("Ctrl-C ends it")
        issue(disk, [("write", 0, 4096)] * 30, tmp_path)
        seen += read("Aligned to at least")
        process.send_signal(signal.SIGINT)
        seen += read("Total I/Os: 30")
        assert process.wait(timeout=30) == 0
    assert "write 30" in seen


def test_a_terminal_that_can_not_draw_gets_plain_text(disk: LoopDisk) -> None:
    with terminal("--disk", disk.name, kind="dumb") as (process, read):
        read(f"tracing block I/O of {disk.name}; Ctrl-C ends it")
        process.send_signal(signal.SIGINT)
        read("No request was seen.")
        assert process.wait(timeout=30) == 0


def first_child(process: subprocess.Popen[str]) -> int:
    """Of ``storlab trace``: the tracer, which is started before the command."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


@contextlib.contextmanager
def tracing(*arguments: str, wrapper: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """``storlab trace`` that has begun, without a terminal."""
    argv = [*wrapper, str(PROGRAM), "trace", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "Ctrl-C ends it" in process.stderr.readline()
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def terminal(*arguments: str, kind: str = "xterm") -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], str]]]:
    """``storlab trace`` on a terminal of 80 columns and 24 lines; ``read`` gives what it shows up to some words."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": kind, "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        [str(PROGRAM), "trace", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)

    def read(words: str) -> str:
        text = ""
        until = time.monotonic() + 30
        while words not in (plain := re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)):
            assert time.monotonic() < until, plain
            try:
                text += os.read(ours, 65536).decode(errors="replace")
            except OSError:  # EIO: nobody has the terminal open any more
                pytest.fail(f"{words!r} did not come in {plain}")
        return plain

    try:
        yield process, read
    finally:
        process.kill()
        process.wait()
        os.close(ours)
