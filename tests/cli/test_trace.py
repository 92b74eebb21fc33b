"""``storlab trace``: what it prints and writes, how it ends, and that it leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest

from laboratory.block import TRACEFS, LoopDisk, issue, loop_disk, needs_root, with_tracefs
from storlab.blockio.requests import request_frame
from storlab.blockio.text import totals
from storlab.blockio.trace_output import EVENT_COLUMNS, Counts, decode_lines
from storlab.cli.trace.run import Interruptible, notes_on, send
from storlab.formats.blkalgn.file import read_blkalgn
from storlab.measurements import REQUEST_COLUMNS
from study.program import PROGRAM, call

SIZE = 64 * 1024**2


def test_who_issued_requests_is_taken_from_all_of_them() -> None:
    def row(count: int, length: int = 4096) -> tuple[object, ...]:
        return ("vda", "write", "", length, 4096, None, count, (count,) * 5)

    line = {
        "event": "counts",
        "final": True,
        "monotonic_ns": 1,
        "realtime_ns": 1,
        "latency": [],
        "others": [],
        "lost": {},
    }
    rows = {"requests": [row(9), row(2, 8192)], "own": [row(4)], "kernel": [row(3), row(2, 8192)]}
    (counts,) = decode_lines(json.dumps(line | rows).encode(), "x")
    assert isinstance(counts, Counts)
    found = [frame.select("length", "count", "units_4k").rows() for frame in counts.frames_by_issuer()]
    assert found == [[(4096, 4, 4)], [(4096, 3, 3), (8192, 2, 2)], [(4096, 2, 2)]]
    assert all(dict(frame.schema) == REQUEST_COLUMNS for frame in counts.frames_by_issuer())


def test_totals_name_each_operation_most_first() -> None:
    rows = [("vda", "write", "", 4096, 4096, None, 5, *[5] * 5), ("vda", "flush", "", 0, 0, None, 2, *[0] * 5)]
    assert totals(request_frame(rows)) == "write 5 (20480 B), flush 2"
    assert totals(request_frame([])) == "none"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--length 4q", '--length: "4q" is not a size'),
        ("--length 4G", "no request is of 4 GiB"),
        ("--alignment 1000", "power of two from 512"),
        ("--interval soon", '--interval: "soon" is not a duration'),
        ("--interval 0", "must be 1 ms or more"),
        ("--for -1", "--for"),
        ("--out nowhere/x.json", 'the folder "nowhere" does not exist'),
        ("--out x.xlsx", ".json, .parquet, .txt, .csv"),
        ("--out /", "the ending says what to write"),
        ("--out pipe.json", "--out pipe.json: is no regular file"),
        ("--events --json", "these need --out FILE.parquet or .csv"),
        ("--events --json --out x.txt", "these need --out FILE.parquet or .csv"),
        ("--disk", "--disk"),
    ],
)
def test_a_mistake_in_the_arguments_is_told_before_anything_is_traced(
    arguments: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    ran = call("trace", *arguments.split())
    assert ran.status == 2
    assert says in ran.message
    assert "Traceback" not in ran.message


def test_a_disk_without_queues_is_named_with_those_underneath(tmp_path: Path) -> None:
    for folder in ("dm-0/slaves/sdb", "dm-0/slaves/sda", "sda/mq"):
        (tmp_path / folder).mkdir(parents=True)
    assert notes_on(["sda", "absent", "../sda", "", "..", "."], tmp_path) == []
    (said,) = notes_on(["sda", "dm-0"], tmp_path)
    assert "dm-0 makes no requests" in said
    assert "sda, sdb" in said


@pytest.mark.parametrize(
    ("start", "further"),
    [
        (2048, ""),
        (63, "; sda1 begins at a multiple of 512, which is on no boundary of 4k: "),
        (2048 + 16, "; sda1 begins at a multiple of 8k, which is on no boundary of 16k: "),
    ],
)
def test_a_partition_is_named_as_a_part_of_its_disk_and_where_it_is_off_the_boundary(
    start: int, further: str, tmp_path: Path
) -> None:
    for folder in ("sda/mq", "sda/sda1"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sda/sda1/partition").write_text("1\n")
    (tmp_path / "sda/sda1/start").write_text(f"{start}\n")
    (tmp_path / "sda1").symlink_to("sda/sda1")
    (said,) = notes_on(["sda1"], tmp_path)
    listed = "sda1 is a partition of sda: its requests are listed as sda's, with their offsets on the whole disk"
    assert said == listed + (f"{further}what is aligned within it is not aligned on the disk" if further else "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_before_the_command_starts_leaves_it_out(number: signal.Signals, tmp_path: Path) -> None:
    run = Interruptible()
    run.signalled(number)
    assert asyncio.run(run.command(("touch", str(tmp_path / "ran")))) == 128 + number
    assert not (tmp_path / "ran").exists()


def test_to_signal_a_child_that_has_just_ended_leaves_its_status_to_asyncio() -> None:
    ended = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    send(cast("Process", SimpleNamespace(pid=ended.pid, returncode=None)), signal.SIGTERM)
    assert os.waitpid(ended.pid, 0)[1] >> 8 == 7
    ended.returncode = 7  # its destructor would wait for it


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path_factory.mktemp("trace") / "disk.img", SIZE) as disk:
        yield disk


class TestOnADisk:
    pytestmark = needs_root

    @staticmethod
    def dd(disk: LoopDisk, length: int, count: int) -> list[str]:
        return [
            "dd",
            "if=/dev/zero",
            f"of={disk.path}",
            f"bs={length}",
            f"count={count}",
            "oflag=direct",
            "status=none",
        ]

    @staticmethod
    def storlab(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        argv = [str(PROGRAM), "trace", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]

    def test_a_command_is_traced_from_its_first_request_to_its_last(self, disk: LoopDisk) -> None:
        ran = self.storlab("--disk", disk.name, "--op", "write", "--", *self.dd(disk, 16384, 20))
        assert (ran.returncode, ran.stdout) == (0, "")
        assert f"I/O Granularity Histogram for Device {disk.name}\nTotal I/Os: 20\n" in ran.stderr
        assert re.search(r"^        16384      : 20       \|\*{40}\|$", ran.stderr, re.MULTILINE)
        assert f"I/O Alignment Histogram for Device {disk.name}" in ran.stderr

    @pytest.mark.parametrize(
        ("command", "status"),
        [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["/no/such"], 127), (["/etc/passwd"], 126)],
    )
    def test_the_commands_status_is_passed_on(self, command: list[str], status: int, disk: LoopDisk) -> None:
        assert self.storlab("--disk", disk.name, "--", *command).returncode == status

    def test_the_commands_input_and_output_are_its_own(self, disk: LoopDisk) -> None:
        ran = self.storlab("--disk", disk.name, "--", "tr", "a-z", "A-Z", input="loud")
        assert (ran.returncode, ran.stdout) == (0, "LOUD")

    def test_filters_leave_the_rest_out(self, disk: LoopDisk) -> None:
        script = " ".join(self.dd(disk, 4096, 3)) + "; " + " ".join(self.dd(disk, 65536, 5))
        ran = self.storlab("--disk", disk.path, "--op", "write", "--length", "64k", "--", "sh", "-c", script)
        assert "Total I/Os: 5\n" in ran.stderr
        ran = self.storlab("--disk", disk.path, "--comm", "nobody", "--", "sh", "-c", script)
        assert "No request was seen." in ran.stderr

    def test_what_the_command_and_its_children_did_comes_before_the_rest(self, disk: LoopDisk) -> None:
        other = subprocess.Popen(["sh", "-c", f"while :; do {' '.join(self.dd(disk, 4096, 1))}; done"])
        try:
            child = f"sh -c '{' '.join(self.dd(disk, 65536, 5))}'"
            buffered = (
                f"dd if=/dev/zero of={disk.path} bs=8k count=1 seek=900 conv=notrunc status=none; sleep 0.3; sync"
            )
            ran = self.storlab("--disk", disk.path, "--op", "write", "--", "sh", "-c", f"{child}; {buffered}")
        finally:
            other.kill()
            other.wait()
        own, others = ran.stderr.partition("== Requests of other processes: write ")[::2]
        head, *groups = own.split("== Requests of ")
        assert head == ""
        assert groups[0].startswith("the command and its children: write ")
        assert re.search(r"^ +65536 +: 5 ", groups[0], re.M)  # of a child
        assert not re.search(r"^ +4096 +:", groups[0], re.M)
        assert "Total I/Os: " in others and re.search(r"^ +4096 +: \d", others, re.M)
        assert not re.search(r"^ +65536 +:", others, re.M)
        assert not list(Path("/sys/fs/cgroup").rglob("storlab-trace-*"))

    def test_a_command_is_found_whose_name_the_kernel_cuts_amid_a_character(
        self, disk: LoopDisk, tmp_path: Path
    ) -> None:
        shutil.copy("/bin/dd", tmp_path / "ääääääää")  # 16 bytes; the kernel keeps 15
        command = [str(tmp_path / "ääääääää"), *self.dd(disk, 4096, 3)[1:]]
        ran = self.storlab("--disk", disk.path, "--comm", "ääääääää", "--", *command)
        assert "Total I/Os: 3\n" in ran.stderr

    def test_each_file_holds_what_its_ending_says(self, disk: LoopDisk, tmp_path: Path) -> None:
        for ending in ("json", "parquet", "csv", "txt"):
            out = tmp_path / f"seen.{ending}"
            ran = self.storlab("--disk", disk.name, "--op", "write", "--out", str(out), "--", *self.dd(disk, 4096, 9))
            assert ran.returncode == 0, ran.stderr
            assert f"written to {out}" in ran.stderr
        read = read_blkalgn((tmp_path / "seen.json").read_bytes())
        assert (read.dialect, read.disks[disk.name].granularity) == (3, {4096: 9})
        requests = pl.read_parquet(tmp_path / "seen.parquet")
        assert dict(requests.schema) == REQUEST_COLUMNS
        assert requests["count"].sum() == 9
        assert pl.read_csv(tmp_path / "seen.csv")["count"].sum() == 9
        assert "Total I/Os: 9" in (tmp_path / "seen.txt").read_text()

    def test_a_disk_may_be_named_by_a_link_to_it_and_a_file_by_a_link_too(self, disk: LoopDisk, tmp_path: Path) -> None:
        link, out = tmp_path / "by-id", tmp_path / "seen.json"
        link.symlink_to(disk.path)
        out.symlink_to("target.json")
        ran = self.storlab("--disk", str(link), "--out", str(out), "--", *self.dd(disk, 4096, 9))
        assert "Total I/Os: 9\n" in ran.stderr
        assert out.is_symlink()
        assert disk.name in json.loads((tmp_path / "target.json").read_text())["disks"]

    def test_what_the_caller_has_closed_leads_nowhere(self, disk: LoopDisk) -> None:
        for stream in ("<", ">", "2>"):
            script = f"{PROGRAM} trace --disk {disk.name} --for 50ms {stream}&-"
            ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
            assert (ran.returncode, "fault" in ran.stderr) == (0, False), (stream, ran.stderr)

    def test_what_can_not_be_shown_is_told_in_one_sentence(self, disk: LoopDisk) -> None:
        with Path("/dev/full").open("w") as full:
            argv = [str(PROGRAM), "trace", "--disk", disk.name, "--for", "50ms"]
            ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert ran.returncode == 2
        assert ran.stderr.splitlines()[1:] == ["storlab: what was seen can't be shown: No space left on device"]

    def test_json_is_alone_on_standard_output(self, disk: LoopDisk) -> None:
        ran = self.storlab("--disk", disk.name, "--json", "--for", "200ms")
        assert (ran.returncode, json.loads(ran.stdout)) == (0, {"disks": {}})

    def test_events_are_rows_and_what_was_dropped_is_said(self, disk: LoopDisk) -> None:
        ran = self.storlab("--disk", disk.name, "--op", "write", "--events", "--", *self.dd(disk, 4096, 4))
        heading, *rows = ran.stderr.splitlines()
        assert heading.split() == ["DISK", "OPS", "FLAGS", "LEN", "LBA", "PID", "COMM", "ALGN"]
        assert [row.split()[4] for row in rows[:4]] == ["0", "4096", "8192", "12288"]
        assert all(row.split()[6] == "dd" for row in rows[:4])
        assert rows[-1] == "storlab: no event was dropped"

    def test_a_terminal_of_80_columns_has_letters_for_flags_and_says_what_they_mean(
        self, disk: LoopDisk, tmp_path: Path
    ) -> None:
        with terminal("--disk", disk.name, "--op", "write", "--events") as (process, read):
            seen = read("ALGN")
            issue(disk, [("write", 0, 4096)] * 3, tmp_path)
            seen += read(" fio ")
            process.send_signal(signal.SIGINT)
            read("no event was dropped")
        assert "flags: p preflush, f fua, s sync" in seen
        assert max(map(len, re.findall(r"(?m)^loop.*", seen))) <= 80

    def test_events_go_into_a_file_where_there_is_one(self, disk: LoopDisk, tmp_path: Path) -> None:
        out = tmp_path / "events.parquet"
        arguments = ["--disk", disk.name, "--op", "write", "--events", "--out", str(out)]
        ran = self.storlab(*arguments, "--", *self.dd(disk, 4096, 4))
        assert ran.returncode == 0
        events = pl.read_parquet(out)
        assert dict(events.schema) == EVENT_COLUMNS
        assert events["alignment"].to_list() == [4096, 4096, 4096, 4096]
        assert events["t"].is_sorted()
        assert f"written to {out}: 4 events" in ran.stderr

    def test_a_file_that_holds_counts_leaves_events_to_be_shown(self, disk: LoopDisk, tmp_path: Path) -> None:
        arguments = ["--disk", disk.name, "--op", "write", "--events", "--out", str(tmp_path / "counts.json")]
        ran = self.storlab(*arguments, "--", *self.dd(disk, 4096, 4))
        assert ran.stderr.count(" dd ") == 4
        assert json.loads((tmp_path / "counts.json").read_text())["disks"][disk.name]["granularity"] == {"4096": 4}

    def test_a_partition_off_the_boundary_has_nothing_aligned_and_its_neighbour_is_not_counted(
        self, tmp_path: Path
    ) -> None:
        with loop_disk(tmp_path / "disk.img", SIZE, (2048, 8192), (16385, 8192)) as disk:
            first, second = f"{disk.path}p1", f"{disk.path}p2"
            writes = "; ".join(f"dd if=/dev/zero of={path} bs=16k count=5 oflag=direct" for path in (first, second))
            ran = self.storlab("--disk", second, "--op", "write", "--", "sh", "-c", writes)
            assert f"Histogram for Device {disk.name}\nTotal I/Os: 5\n" in ran.stderr
            assert f"{Path(second).name} begins at a multiple of 512, which is on no boundary of 4k" in ran.stderr
            assert re.search(r"write: requests +0 % +0 % +0 %", ran.stderr)
            ran = self.storlab("--disk", first, "--op", "write", "--", "sh", "-c", writes)
            assert "Total I/Os: 5\n" in ran.stderr
            assert re.search(r"write: requests +100 % +100 % +100 %", ran.stderr)

    def test_commands_are_told_apart(self, disk: LoopDisk) -> None:
        ran = self.storlab("--disk", disk.name, "--by-comm", "--op", "write", "--", *self.dd(disk, 4096, 4))
        assert re.search(r"^dd +write +4 +16384$", ran.stderr, re.MULTILINE)

    def test_without_a_terminal_tables_come_each_interval(self, disk: LoopDisk) -> None:
        with tracing("--disk", disk.name, "--op", "write", "--interval", "100ms", "--for", "2s") as process:
            subprocess.run(self.dd(disk, 4096, 1), check=True)
            output, _ = process.communicate(timeout=30)
        assert output.count("s since the start\n") > 3
        assert output.count("Total I/Os: 1\n") > 2

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_prints_what_there_is(self, number: signal.Signals, disk: LoopDisk, tmp_path: Path) -> None:
        with tracing("--disk", disk.name, "--op", "write") as process:
            issue(disk, [("write", 0, 4096)] * 3, tmp_path)
            process.send_signal(number)
            output, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "Total I/Os: 3\n" in output

    def test_what_nohup_starts_outlives_its_terminal(self, disk: LoopDisk, tmp_path: Path) -> None:
        with tracing("--disk", disk.name, "--op", "write", wrapper=["nohup"]) as process:
            process.send_signal(signal.SIGHUP)
            issue(disk, [("write", 0, 4096)] * 3, tmp_path)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=30)
        assert "Total I/Os: 3\n" in output

    def test_a_signal_ends_the_command_and_then_the_tracing(self, disk: LoopDisk) -> None:
        argv = [str(PROGRAM), "trace", "--disk", disk.name, "--", "sh", "-c", "echo running; exec sleep 60"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.terminate()
            _, message = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
        assert "No request was seen." in message

    def test_the_tracer_does_not_outlive_a_storlab_that_was_killed(self, disk: LoopDisk) -> None:
        with tracing("--disk", disk.name) as process:
            tracer = first_child(process)
            process.kill()
            process.communicate(timeout=30)
        until = time.monotonic() + 10
        while Path(f"/proc/{tracer}").exists():
            assert time.monotonic() < until
            time.sleep(0.02)

    def test_a_tracer_that_was_killed_is_told(self, disk: LoopDisk) -> None:
        with tracing("--disk", disk.name) as process:
            os.kill(first_child(process), signal.SIGKILL)
            _, message = process.communicate(timeout=30)
        assert (process.returncode, message) == (
            1,
            "storlab: the tracer ended before it reported what it had counted\n",
        )

    def test_a_command_whose_tracer_was_killed_has_its_own_status_all_the_same(self, disk: LoopDisk) -> None:
        argv = [str(PROGRAM), "trace", "--disk", disk.name, "--", "sh", "-c", "echo running; read line; exit 5"]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            os.kill(first_child(process), signal.SIGKILL)
            _, message = process.communicate("go on\n", timeout=30)
        assert (process.returncode, message) == (
            5,
            "storlab: the tracer ended before it reported what it had counted\n",
        )

    def test_a_reader_that_has_seen_enough_is_no_fault(self, disk: LoopDisk) -> None:
        script = f"{PROGRAM} trace --disk {disk.name} --interval 50ms --for 20s | head -1"
        ran = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert "Traceback" not in ran.stderr

    def test_a_reader_that_goes_leaves_the_file_to_be_written(self, disk: LoopDisk, tmp_path: Path) -> None:
        out = tmp_path / "trace.json"
        script = f"{PROGRAM} trace --disk {disk.name} --interval 50ms --out {out} | head -1"
        subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=True)
        assert json.loads(out.read_bytes()) == {"disks": {}}

    def test_a_terminal_that_closes_leaves_the_file_to_be_written(self, disk: LoopDisk, tmp_path: Path) -> None:
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

    def test_an_unknown_disk_or_operation_is_named(self) -> None:
        for arguments, says in ((["--disk", "nope"], '"nope"'), (["--op", "wrote"], '"wrote" is no operation')):
            ran = self.storlab(*arguments, "--for", "1s")
            assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
            assert says in ran.stderr

    @pytest.mark.parametrize("tracefs", list(TRACEFS))
    def test_without_privileges_there_is_one_sentence(self, tracefs: str) -> None:
        argv = [*with_tracefs(tracefs), "setpriv", "--bounding-set=-all", str(PROGRAM), "trace", "--for", "1s"]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 2
        assert ran.stderr.startswith("storlab: block I/O can't be traced: this process may not load eBPF programs: ")
        assert ran.stderr.count("\n") == 1

    def test_a_terminal_shows_it_live_and_then_the_tables(self, disk: LoopDisk, tmp_path: Path) -> None:
        with terminal("--disk", disk.name, "--op", "write", "--interval", "100ms") as (process, read):
            seen = read("Ctrl-C ends it")
            issue(disk, [("write", 0, 4096)] * 30, tmp_path)
            seen += read("Aligned to at least")
            process.send_signal(signal.SIGINT)
            seen += read("Total I/Os: 30")
            assert process.wait(timeout=30) == 0
        assert "write 30" in seen

    def test_a_terminal_that_can_not_draw_gets_plain_text(self, disk: LoopDisk) -> None:
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
