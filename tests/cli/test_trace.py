"""``storlab trace`` without a disk: what is refused, notes on disks, signals, tables, views, files of events."""

import asyncio
import io
import json
import os
import random
import signal
import subprocess
from asyncio.subprocess import Process
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, Group

from laboratory.devices import tmpfs
from storlab.base.errors import UserError
from storlab.blockio.requests import request_frame
from storlab.blockio.text import totals
from storlab.blockio.trace_output import EVENT_COLUMNS, Counts, Event, Lost, Started, decode_lines
from storlab.cli.trace.block import Latency, latency_rows, latency_table, notes_on
from storlab.cli.trace.child import Interruptible, send
from storlab.cli.trace.files import EventFile
from storlab.cli.trace.tcp import connections
from storlab.cli.trace.view import Seen, requests_view
from storlab.measurements import REQUEST_COLUMNS
from storlab.probes.tcp.output import LINES
from storlab.probes.tcp.totals import Follower
from study.program import call
from tcp.lines import connection, printed, sample


def test_who_issued_requests_is_taken_from_all_of_them() -> None:
    def row(count: int, length: int = 4096) -> tuple[object, ...]:
        return ("vda", "write", "", length, 4096, None, count, (count,) * 5)

    line = {
        "event": "counts", "final": True, "monotonic_ns": 1, "realtime_ns": 1, "latency": [], "others": [],
        "lost": {},
    }  # fmt: skip
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
        ("--tcp --disk sda", "--disk is of block I/O"),
        ("--tcp --events", "--events is of block I/O"),
        ("--port 1", "--port is of connections: it needs --tcp"),
        ("--host 10.0.0.1", "--host is of connections: it needs --tcp"),
        ("--tcp --port 70000", "--port 70000: a port is a number from 1 to 65535"),
        ("--tcp --host store", "--host: 'store' does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_a_mistake_in_the_arguments_is_told_before_anything_is_traced(arguments: str, says: str, here: Path) -> None:
    os.mkfifo("pipe.json")
    ran = call("trace", *arguments.split())
    assert ran.status == 2 and says in ran.message and "Traceback" not in ran.message


def test_a_disk_without_queues_is_named_with_those_underneath(tmp_path: Path) -> None:
    for folder in ("dm-0/slaves/sdb", "dm-0/slaves/sda", "sda/mq"):
        (tmp_path / folder).mkdir(parents=True)
    assert list(notes_on(["sda", "absent", "../sda", "", "..", "."], tmp_path)) == []
    (said,) = notes_on(["sda", "dm-0"], tmp_path)
    assert "dm-0 makes no requests" in said and "sda, sdb" in said


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


BINS = (("read", 1_000, 1_100, 1), ("write", 20_000, 22_000, 98), ("write", 800_000, 900_000, 2))


def seen() -> list[Latency]:
    """The command wrote 90 times and read, all of it fast; others wrote 8 times fast and twice slowly."""
    all_of_them = tuple(("vda", operation, "service", *rest) for operation, *rest in BINS)
    own = (all_of_them[0], (*all_of_them[1][:5], 90))
    waited = ("vda", "write", "queued", 5, 6, 100)
    counts = Counts(True, 1, 1, (), (*all_of_them, waited), (), Lost(), own_latency=own)  # type: ignore[arg-type]
    return latency_rows(counts.latency_by_issuer())


def test_the_commands_latencies_come_first_in_a_table_with_a_line_for_each_without_those_of_others() -> None:
    assert [(row.issuer, row.operation, row.count) for row in seen()] == [
        ("command", "write", 90),
        ("command", "read", 1),
        ("others", "write", 10),
    ]
    assert [row.p99 for row in seen()] == pytest.approx([21e-6, 1.05e-6, 850e-6])
    table = latency_table(seen())
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "ISSUER DISK OPS I/Os MEDIAN P99 MAX",
        "the command vda write 90 21.0 µs 21.0 µs 22.0 µs",
        "the command vda read 1 1.05 µs 1.05 µs 1.10 µs",
        "other processes vda write 10 21.0 µs 850 µs 900 µs",
    ]
    assert {len(line) for line in table.splitlines()} == {73}
    assert latency_table([]) == ""


STARTED = Started(hook="btf", monotonic_ns=0, realtime_ns=0, disks=("nvme0n1",), latency=True)
COUNTS = Counts(
    final=False,
    monotonic_ns=3_000_000_000,
    realtime_ns=0,
    requests=tuple(
        ("nvme0n1", operation, "sync", length, alignment, None, 1234, (1234 * length // 4096 + 1234,) * 5)
        for operation in ("read", "write")
        for length in (512, 4096, 20480, 131072)
        for alignment in (512, 4096, 65536)
    ),
    latency=(("nvme0n1", "write", "service", 900_000, 950_000, 99), ("nvme0n1", "read", "service", 70, 75, 3)),
    others=(),
    lost=Lost(),
)


def drawn(width: int, height: int = 24) -> list[str]:
    """Lines on a terminal of that size."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, highlight=False)
    console.print(Group(*requests_view(Seen.of(STARTED, COUNTS), width, height)))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 49, 50, 79, 80, 200])
def test_no_number_is_cut_and_no_line_is_too_long(width: int) -> None:
    heading, totals, *rest = drawn(width)
    assert max(map(len, [heading, totals, *rest])) <= width
    assert not [line for line in rest if "…" in line.strip()[1:]]  # at its beginning it stands for sizes left out
    assert sum("16k" in line for line in rest) == 1, "the unit that is asked for most"


def test_eighty_columns_have_room_for_all_and_forty_for_histograms_one_above_the_other() -> None:
    text = "\n".join(drawn(80))
    for words in ("Length", "Alignment", "  4k", "  8k", "16k", "32k", "64k", "p50", "p99.9", "max", "amplification"):
        assert words in text
    assert len(drawn(80)) <= 24
    lines = drawn(40)
    (length,) = (number for number, line in enumerate(lines) if "Length" in line)
    (alignment,) = (number for number, line in enumerate(lines) if "Alignment" in line)
    assert alignment > length
    assert "32k" not in "".join(lines)


def drawn_connections(width: int, count: int = 3) -> list[str]:
    seen = Follower()
    rows = [
        connection(n, bytes_sent=9**9, segs_out=9**6, data_segs_out=9**5, rtt=99999, cwnd=999) for n in range(count)
    ]
    for line in printed(sample(1), sample(5, *rows)):
        seen.add(LINES.decode(line))
    out = io.StringIO()
    console = Console(file=out, width=width, height=24, color_system=None, highlight=False)
    console.print(Group(*connections(seen, width, 24)))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 87, 88, 119, 120, 200])
def test_no_number_of_connections_is_cut_and_no_line_is_too_long(width: int) -> None:
    lines = drawn_connections(width)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line]
    assert any("369 MiB" in line and "100 ms" in line for line in lines)


def test_a_view_of_connections_is_no_higher_than_the_terminal_and_says_how_many_are_left_out() -> None:
    lines = drawn_connections(140, 50)
    assert len(lines) <= 24 and lines[-1] == "… and 33 more"


SMALL = 100  # events in a part


def events(count: int, start: int = 0) -> list[Event]:
    """As the kernel gives them: nearly in order of time, and none like any other."""
    chance = random.Random(start)
    return [
        ("loop0", "write", "sync", 4096, start + n, 7, "dd", (start + n) * 1000 + chance.randrange(50_000))
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 99, 5000])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_every_event_is_in_the_file_once_in_order_of_time(count: int, ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"events.{ending}"
    file = EventFile(out, SMALL)
    for start in range(0, count, 37):
        assert file.add(events(min(37, count - start), start)) is None
    file.finish()
    read = pl.read_parquet(out) if ending == "parquet" else pl.read_csv(out, schema=EVENT_COLUMNS)
    assert dict(read.schema) == EVENT_COLUMNS
    assert file.saved == read.height == count
    assert read["t"].is_sorted() and sorted(read["offset"]) == [512 * n for n in range(count)]
    assert list(tmp_path.iterdir()) == [out]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3000), max_size=6))
def test_how_events_are_handed_over_changes_nothing(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    out = tmp_path_factory.mktemp("events") / "events.parquet"
    file, start = EventFile(out, SMALL), 0
    for size in sizes:
        file.add(events(size, start))
        start += size
    file.finish()
    assert sorted(pl.read_parquet(out)["offset"]) == [512 * n for n in range(sum(sizes))]


def test_a_killed_trace_leaves_parts_that_can_be_read(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.parquet", SMALL)
    file.add(events(5000))
    assert not (tmp_path / "events.parquet").exists()
    left = file.left()
    assert left is not None and left.startswith("the first 3,976 events are in ")
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("events.parquet.") and folder.suffix == ".parts"
    assert pl.read_parquet(folder / "*.parquet").height == file.saved == 3976


@pytest.mark.needs("root")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_full_disk_is_told_at_once_and_what_was_saved_is_named(ending: str, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        (folder / "ballast").write_bytes(bytes(700_000))
        out = folder / f"events.{ending}"
        file = EventFile(out, 5000)
        said = [file.add(events(1000, start)) for start in range(0, 100_000, 1000)]
        told = [sentence for sentence in said if sentence]
        assert told == ["events from here on are not kept: No space left on device"]
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device; the first") as refused:
            file.finish()
        assert "\n" not in str(refused.value)
        assert pl.read_parquet(next(folder.glob("*.parts")) / "*.parquet").height == file.saved > 0
        assert not out.exists()


@pytest.mark.needs("root")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_disk_that_has_room_for_the_parts_alone_keeps_them(ending: str, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        file = EventFile(folder / f"events.{ending}", 5000)
        for start in range(0, 40_000, 1000):
            assert file.add(events(1000, start)) is None
        (folder / "ballast").write_bytes(bytes(free(folder) - 100_000))  # for the last part
        with pytest.raises(UserError, match="No space left on device; the first 40,000 events are in"):
            file.finish()
        assert {path.suffix for path in folder.iterdir()} == {".parts", ""}


@pytest.mark.needs("root")
def test_a_disk_that_was_full_before_has_nothing_more_on_it_after(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        (folder / "ballast").write_bytes(bytes(free(folder)))
        file = EventFile(folder / "events.parquet", SMALL)
        file.add(events(5000))
        with pytest.raises(UserError, match="No space left on device; no event is kept"):
            file.finish()
        assert [path.name for path in folder.iterdir()] == ["ballast"]


def free(folder: Path) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
