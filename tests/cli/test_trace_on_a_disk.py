"""``storlab trace`` on a loop device: what it prints and writes, and who issued what."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from laboratory.block import LoopDisk, loop_disk, traced
from storlab.blockio.trace_output import EVENT_COLUMNS, decode_output
from storlab.cli.trace.child import own_group
from storlab.measurements import REQUEST_COLUMNS
from storlab.tools.blkalgn import read_blkalgn
from study.program import PROGRAM, program

SIZE = 64 * 1024**2

pytestmark = pytest.mark.needs("root")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path_factory.mktemp("trace") / "disk.img", SIZE) as disk:
        yield disk


def dd(path: str, length: int, count: int) -> list[str]:
    return f"dd if=/dev/zero of={path} bs={length} count={count} oflag=direct status=none".split()


def storlab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return program("trace", *arguments)


def test_a_command_is_traced_from_its_first_request_to_its_last(disk: LoopDisk) -> None:
    ran = storlab("--disk", disk.name, "--op", "write", "--", *dd(disk.path, 16384, 20))
    assert (ran.returncode, ran.stdout) == (0, "")
    assert f"I/O Granularity Histogram for Device {disk.name}\nTotal I/Os: 20\n" in ran.stderr
    assert re.search(r"^        16384      : 20       \|\*{40}\|$", ran.stderr, re.MULTILINE)
    assert f"I/O Alignment Histogram for Device {disk.name}" in ran.stderr


def test_filters_leave_the_rest_out_and_commands_are_told_apart(disk: LoopDisk) -> None:
    script = " ".join(dd(disk.path, 4096, 3)) + "; " + " ".join(dd(disk.path, 65536, 5))
    ran = storlab("--disk", disk.path, "--op", "write", "--length", "64k", "--", "sh", "-c", script)
    assert "Total I/Os: 5\n" in ran.stderr
    ran = storlab("--disk", disk.path, "--comm", "nobody", "--", "sh", "-c", script)
    assert "No request was seen." in ran.stderr
    ran = storlab("--disk", disk.name, "--by-comm", "--op", "write", "--", *dd(disk.path, 4096, 4))
    assert re.search(r"^dd +write +4 +16384$", ran.stderr, re.MULTILINE)


def test_what_the_command_and_its_children_did_comes_before_the_rest(disk: LoopDisk) -> None:
    other = subprocess.Popen(["sh", "-c", f"while :; do {' '.join(dd(disk.path, 4096, 1))}; done"])
    try:
        child = f"sh -c '{' '.join(dd(disk.path, 65536, 5))}'"
        buffered = f"dd if=/dev/zero of={disk.path} bs=8k count=1 seek=900 conv=notrunc status=none; sleep 0.3; sync"
        ran = storlab("--disk", disk.path, "--op", "write", "--", "sh", "-c", f"echo $PPID; {child}; {buffered}")
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
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    assert not [name for name in groups if re.fullmatch(rf"storlab-trace-\d+-{int(ran.stdout)}", name)]


def test_a_command_is_found_whose_name_the_kernel_cuts_amid_a_character(disk: LoopDisk, tmp_path: Path) -> None:
    shutil.copy("/bin/dd", tmp_path / "ääääääää")  # 16 bytes; the kernel keeps 15
    command = [str(tmp_path / "ääääääää"), *dd(disk.path, 4096, 3)[1:]]
    ran = storlab("--disk", disk.path, "--comm", "ääääääää", "--", *command)
    assert "Total I/Os: 3\n" in ran.stderr


def test_each_file_holds_what_its_ending_says(disk: LoopDisk, tmp_path: Path) -> None:
    for ending in ("json", "parquet", "csv", "txt"):
        out = tmp_path / f"seen.{ending}"
        ran = storlab("--disk", disk.name, "--op", "write", "--out", str(out), "--", *dd(disk.path, 4096, 9))
        assert ran.returncode == 0, ran.stderr
        assert f"written to {out}" in ran.stderr
    read = read_blkalgn((tmp_path / "seen.json").read_bytes())
    assert (read.dialect, read.disks[disk.name].granularity) == (3, {4096: 9})
    requests = pl.read_parquet(tmp_path / "seen.parquet")
    assert dict(requests.schema) == REQUEST_COLUMNS and requests["count"].sum() == 9
    assert pl.read_csv(tmp_path / "seen.csv")["count"].sum() == 9
    assert "Total I/Os: 9" in (tmp_path / "seen.txt").read_text()


def test_a_disk_may_be_named_by_a_link_to_it_and_a_file_by_a_link_too(disk: LoopDisk, tmp_path: Path) -> None:
    link, out = tmp_path / "by-id", tmp_path / "seen.json"
    link.symlink_to(disk.path)
    out.symlink_to("target.json")
    ran = storlab("--disk", str(link), "--out", str(out), "--", *dd(disk.path, 4096, 9))
    assert "Total I/Os: 9\n" in ran.stderr
    assert out.is_symlink()
    assert disk.name in json.loads((tmp_path / "target.json").read_text())["disks"]


def test_json_is_alone_on_standard_output(disk: LoopDisk) -> None:
    ran = storlab("--disk", disk.name, "--json", "--for", "200ms")
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"disks": {}})
    both = f"echo said; {' '.join(dd(disk.path, 4096, 9))}"
    ran = storlab("--disk", disk.name, "--op", "write", "--json", "--", "sh", "-c", both)
    assert json.loads(ran.stdout)["disks"][disk.name]["granularity"] == {"4096": 9}
    assert ran.stderr.splitlines() == ["said"]


def test_events_are_rows_and_what_was_dropped_is_said(disk: LoopDisk) -> None:
    ran = storlab("--disk", disk.name, "--op", "write", "--events", "--", *dd(disk.path, 4096, 4))
    heading, *rows = ran.stderr.splitlines()
    assert heading.split() == ["DISK", "OPS", "FLAGS", "LEN", "LBA", "PID", "COMM", "ALGN"]
    assert [row.split()[4] for row in rows[:4]] == ["0", "4096", "8192", "12288"]
    assert all(row.split()[6] == "dd" for row in rows[:4])
    assert rows[-1] == "storlab: no event was dropped"


def test_events_go_into_a_file_for_them_and_are_shown_beside_one_that_holds_counts(
    disk: LoopDisk, tmp_path: Path
) -> None:
    out = tmp_path / "events.parquet"
    arguments = ["--disk", disk.name, "--op", "write", "--events", "--out", str(out)]
    ran = storlab(*arguments, "--", *dd(disk.path, 4096, 4))
    assert ran.returncode == 0
    events = pl.read_parquet(out)
    assert dict(events.schema) == EVENT_COLUMNS and events["alignment"].to_list() == [4096, 4096, 4096, 4096]
    assert events["t"].is_sorted()
    assert f"written to {out}: 4 events" in ran.stderr
    arguments = ["--disk", disk.name, "--op", "write", "--events", "--out", str(tmp_path / "counts.json")]
    ran = storlab(*arguments, "--", *dd(disk.path, 4096, 4))
    assert ran.stderr.count(" dd ") == 4
    assert json.loads((tmp_path / "counts.json").read_text())["disks"][disk.name]["granularity"] == {"4096": 4}


def test_a_partition_off_the_boundary_has_nothing_aligned_and_its_neighbour_is_not_counted(tmp_path: Path) -> None:
    with loop_disk(tmp_path / "disk.img", SIZE, (2048, 8192), (16385, 8192)) as disk:
        first, second = f"{disk.path}p1", f"{disk.path}p2"
        writes = "; ".join(f"dd if=/dev/zero of={path} bs=16k count=5 oflag=direct" for path in (first, second))
        ran = storlab("--disk", second, "--op", "write", "--", "sh", "-c", writes)
        assert f"Histogram for Device {disk.name}\nTotal I/Os: 5\n" in ran.stderr
        assert f"{Path(second).name} begins at a multiple of 512, which is on no boundary of 4k" in ran.stderr
        assert re.search(r"write: requests +0 % +0 % +0 %", ran.stderr)
        ran = storlab("--disk", first, "--op", "write", "--", "sh", "-c", writes)
        assert "Total I/Os: 5\n" in ran.stderr
        assert re.search(r"write: requests +100 % +100 % +100 %", ran.stderr)


LOAD = """
import socket
print("said")
with socket.create_server(("127.0.0.1", {port})) as server:
    with socket.create_connection(("127.0.0.1", {port})) as client, server.accept()[0] as peer:
        client.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(peer.recv(left))
raise SystemExit(7)
"""


def test_connections_of_a_command_are_counted_and_its_status_is_passed_on() -> None:
    port = "17811"
    ended = storlab("--tcp", "--port", port, "--json", "--", sys.executable, "-c", LOAD.format(port=port))
    assert ended.returncode == 7, ended.stderr
    seen = json.loads(ended.stdout)
    found = seen["metrics"]
    assert (found["connections"], found["connections.opened"], found["connections.closed"]) == (2, 2, 2)
    assert (found["bytes.sent"] - found["bytes.retransmitted"], found["bytes.received"]) == (100_000, 100_000)


@pytest.mark.parametrize("hook", ["btf", "tracepoint"])
def test_each_request_has_its_latency_with_who_issued_it(hook: str, disk: LoopDisk) -> None:
    with own_group() as group, disk_on(disk) as upper:
        if group is None:
            pytest.skip("no cgroup v2 here")
        arguments = ["--disk", disk.name, "--op", "read", "--op", "write", "--cgroup", str(group.identity)]
        with (
            traced(*arguments, "--hook", hook) as tracing,
            subprocess.Popen(fio(disk), stdout=subprocess.PIPE, preexec_fn=group.join) as own,
        ):
            subprocess.run(dd(disk.path, 16384, 70), check=True)
            subprocess.run(dd(upper, 16384, 50), check=True)
            report, _ = own.communicate(timeout=60)
    counts = decode_output(BytesIO(tracing.output)).counts
    assert (counts.in_flight, counts.lost.full, counts.lost.untimed) == (0, 0, 0)
    requests = [numbers(frame) for frame in counts.frames_by_issuer()]
    latencies = [numbers(frame, ("what", "service")) for frame in counts.latency_by_issuer()]
    own_count, kernel, others = latencies
    assert latencies == requests
    assert own_count == issued(report)
    assert kernel.get("write", 0) + others["write"] == 70 + 50
    assert others["write"] >= 70
    everybody = numbers(counts.latency_frame(), ("what", "service"))
    assert everybody["write"] == own_count["write"] + 120


def test_tables_and_json_tell_a_commands_latencies_from_those_of_others(disk: LoopDisk, tmp_path: Path) -> None:
    out = tmp_path / "seen.json"
    argv = [str(PROGRAM), "trace", "--disk", disk.path, "--out", str(out), "--", *fio(disk)]
    with beside(*dd(disk.path, 16384, 1)):
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    table = ran.stderr.partition("== Latencies, from issue to completion\n")[2]
    own = issued(ran.stdout)
    shown = {tuple(line.split()[1:5]) for line in table.splitlines() if line.startswith("the command ")}
    assert shown == {("command", disk.name, operation, str(count)) for operation, count in own.items()}
    assert "other processes " in table
    rows = json.loads(out.read_bytes())["latency"]
    assert {row["operation"]: row["count"] for row in rows if row["issuer"] == "command"} == own
    assert all(0 < row["median"] <= row["p99"] <= row["max"] for row in rows)
    total = read_blkalgn(out.read_bytes()).disks[disk.name].total
    ended = sum(row["count"] for row in rows if row["operation"] in own)
    assert total - ended in (0, 1), "the last of the other may have been in flight"


def test_a_trace_that_begins_removes_groups_of_the_dead_and_none_that_another_is_about_to_use() -> None:
    with own_group() as group:
        if group is None:
            pytest.skip("no cgroup v2 here")
        dead = group.folder.with_name(group.folder.name.removesuffix(str(os.getpid())) + str(2**22))
        elsewhere = dead.with_name(f"storlab-trace-1-{2**22}")  # in a container, whose processes nobody sees here
        dead.mkdir()
        elsewhere.mkdir()
        another = "from storlab.cli.trace.child import own_group\nwith own_group() as group: assert group is not None"
        try:
            subprocess.run([sys.executable, "-c", another], check=True)
            assert group.folder.exists() and elsewhere.exists() and not dead.exists()
        finally:
            elsewhere.rmdir()


def fio(disk: LoopDisk) -> list[str]:
    """300 writes or so and as many reads, four at once, in the last 16 MiB."""
    what = [
        "--rw=randrw", "--bs=4k", "--offset=48M", "--size=16M", "--io_size=2400k", "--iodepth=4",
        "--ioengine=libaio",
    ]  # fmt: skip
    return ["fio", "--name=own", f"--filename={disk.path}", "--direct=1", "--output-format=json", *what]


def issued(report: str | bytes) -> dict[str, int]:
    (job,) = json.loads(report)["jobs"]
    return {operation: job[operation]["total_ios"] for operation in ("read", "write")}


@contextlib.contextmanager
def beside(*command: str) -> Iterator[None]:
    """Within, this is repeated by another process."""
    with subprocess.Popen(["sh", "-c", 'while "$@"; do sleep 0.01; done', "sh", *command]) as other:
        try:
            yield
        finally:
            other.kill()


@contextlib.contextmanager
def disk_on(disk: LoopDisk) -> Iterator[str]:
    """A loop device over the second 16 MiB, whose requests a thread of the kernel passes on."""
    argv = ["losetup", "--find", "--show", "--direct-io=on", "--offset=16M", "--sizelimit=16M", disk.path]
    upper = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield upper
    finally:
        subprocess.run(["losetup", "-d", upper], check=True)


def numbers(frame: pl.DataFrame, *only: tuple[str, str]) -> dict[str, int]:
    chosen = frame.filter(*(pl.col(name) == value for name, value in only))
    return dict(chosen.group_by("operation").agg(pl.col("count").sum()).iter_rows())
