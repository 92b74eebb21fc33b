"""Latencies of a traced command beside those of others: whose they are, and how they are shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from laboratory.block import LoopDisk, loop_disk, needs_root, traced
from storlab.blockio.trace_output import Counts, Lost, decode_output
from storlab.cli.trace.latencies import Latency, latency_rows, latency_table
from storlab.cli.trace.own import own_group
from storlab.formats.blkalgn.file import read_blkalgn
from study.program import PROGRAM

MIB = 1024**2
BINS = (("read", 1_000, 1_100, 1), ("write", 20_000, 22_000, 98), ("write", 800_000, 900_000, 2))


def seen() -> list[Latency]:
    """The command wrote 90 times and read, all of it fast; others wrote 8 times fast and twice slowly."""
    all_of_them = tuple(("vda", operation, "service", *rest) for operation, *rest in BINS)
    own = (all_of_them[0], (*all_of_them[1][:5], 90))
    waited = ("vda", "write", "queued", 5, 6, 100)
    counts = Counts(True, 1, 1, (), (*all_of_them, waited), (), Lost(), own_latency=own)  # type: ignore[arg-type]
    return latency_rows(counts.latency_by_issuer())


def test_the_commands_latencies_come_first_and_those_of_others_are_not_in_them() -> None:
    assert [(row.issuer, row.operation, row.count) for row in seen()] == [
        ("command", "write", 90),
        ("command", "read", 1),
        ("others", "write", 10),
    ]
    assert [row.p99 for row in seen()] == pytest.approx([21e-6, 1.05e-6, 850e-6])


def test_a_table_has_a_line_for_each_in_eighty_columns() -> None:
    table = latency_table(seen())
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "ISSUER DISK OPS I/Os MEDIAN P99 MAX",
        "the command vda write 90 21.0 µs 21.0 µs 22.0 µs",
        "the command vda read 1 1.05 µs 1.05 µs 1.10 µs",
        "other processes vda write 10 21.0 µs 850 µs 900 µs",
    ]
    assert {len(line) for line in table.splitlines()} == {73}
    assert latency_table([]) == ""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopDisk]:
    with loop_disk(tmp_path_factory.mktemp("latencies") / "disk.img", 64 * MIB) as disk:
        yield disk


def fio(disk: LoopDisk) -> list[str]:
    """300 writes or so and as many reads, four at once, in the last 16 MiB."""
    what = [
        "--rw=randrw",
        "--bs=4k",
        "--offset=48M",
        "--size=16M",
        "--io_size=2400k",
        "--iodepth=4",
        "--ioengine=libaio",
    ]
    return ["fio", "--name=own", f"--filename={disk.path}", "--direct=1", "--output-format=json", *what]


def issued(report: str | bytes) -> dict[str, int]:
    """What fio says that it has issued."""
    (job,) = json.loads(report)["jobs"]
    return {operation: job[operation]["total_ios"] for operation in ("read", "write")}


@contextmanager
def beside(*command: str) -> Iterator[None]:
    """Within, this is repeated by another process."""
    with subprocess.Popen(["sh", "-c", 'while "$@"; do sleep 0.01; done', "sh", *command]) as other:
        try:
            yield
        finally:
            other.kill()


@contextmanager
def disk_on(disk: LoopDisk) -> Iterator[str]:
    """A loop device over the second 16 MiB, whose requests a thread of the kernel passes on."""
    argv = ["losetup", "--find", "--show", "--direct-io=on", "--offset=16M", "--sizelimit=16M", disk.path]
    upper = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield upper
    finally:
        subprocess.run(["losetup", "-d", upper], check=True)


def dd(path: str, count: int) -> list[str]:
    return ["dd", "if=/dev/zero", f"of={path}", "bs=16k", f"count={count}", "oflag=direct", "status=none"]


def numbers(frame: pl.DataFrame, *only: tuple[str, str]) -> dict[str, int]:
    chosen = frame.filter(*(pl.col(name) == value for name, value in only))
    return dict(chosen.group_by("operation").agg(pl.col("count").sum()).iter_rows())


class TestOnADisk:
    pytestmark = needs_root

    @pytest.mark.parametrize("hook", ["btf", "tracepoint"])
    def test_each_request_has_its_latency_with_who_issued_it(self, hook: str, disk: LoopDisk) -> None:
        with own_group() as group, disk_on(disk) as upper:
            if group is None:
                pytest.skip("no cgroup v2 here")
            arguments = ["--disk", disk.name, "--op", "read", "--op", "write", "--cgroup", str(group.identity)]
            with (
                traced(*arguments, "--hook", hook) as tracing,
                subprocess.Popen(fio(disk), stdout=subprocess.PIPE, preexec_fn=group.join) as own,
            ):
                subprocess.run(dd(disk.path, 70), check=True)
                subprocess.run(dd(upper, 50), check=True)
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

    def test_tables_and_json_tell_a_commands_latencies_from_those_of_others(
        self, disk: LoopDisk, tmp_path: Path
    ) -> None:
        out = tmp_path / "seen.json"
        argv = [str(PROGRAM), "trace", "--disk", disk.path, "--out", str(out), "--", *fio(disk)]
        with beside(*dd(disk.path, 1)):
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

    def test_a_trace_that_begins_removes_groups_of_the_dead_and_none_that_another_is_about_to_use(self) -> None:
        with own_group() as group:
            if group is None:
                pytest.skip("no cgroup v2 here")
            dead = group.folder.with_name(group.folder.name.replace(str(os.getpid()), str(2**22)))
            dead.mkdir()
            another = "from storlab.cli.trace.own import own_group\nwith own_group() as group: assert group is not None"
            subprocess.run([sys.executable, "-c", another], check=True)
            assert group.folder.exists() and not dead.exists()
