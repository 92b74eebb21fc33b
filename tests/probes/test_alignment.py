"""Probe ``alignment``: its metrics from what the tracer printed, where it watches, and why it could not."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.block import issue, loop_disk
from storlab.base.errors import ParseError, StorlabError
from storlab.measurements import HISTOGRAM_COLUMNS, Measurements
from storlab.nodes.kinds.local import local_node
from storlab.probes.alignment import AlignmentProbe
from storlab.probes.base import NOTES, ProbeContext, ProbeRecord, Window
from storlab.probes.subject import End, Subject

from . import watched

WINDOW = Window(0.0, 1.0)
VDA = Subject(group="vm", disks=("vda",))
LOST = {"full": 0, "missed": 0, "untimed": 0, "events": 0}
STARTED = {"event": "started", "hook": "btf", "monotonic_ns": 1, "realtime_ns": 1, "disks": ["vda"], "latency": True}
REQUESTS = [
    ["vda", "write", "sync", 16384, 16384, None, 6, [24, 12, 6, 6, 6]],
    ["vda", "write", "fua+sync+meta", 4096, 0, None, 1, [1, 1, 1, 1, 1]],
    ["vda", "write", "", 16384, 4096, None, 1, [4, 3, 2, 1, 1]],
    ["vda", "read", "", 65536, 1 << 40, None, 2, [32, 16, 8, 4, 2]],
    ["vda", "flush", "preflush", 0, 0, None, 3, [0, 0, 0, 0, 0]],
    ["vda", "discard", "", 1 << 20, 1 << 20, None, 1, [256, 128, 64, 32, 16]],
]
LATENCY = [
    ["vda", "write", "service", 1024, 1088, 6],
    ["vda", "write", "service", 65536, 69632, 2],
    ["vda", "write", "queued", 100, 104, 8],
]
OTHERS = [["vda", "write", "back_merge", 5], ["vda", "discard", "error", 1]]
COUNTED = {"event": "counts", "final": True, "monotonic_ns": 2, "realtime_ns": 2, "lost": LOST}


def saw(
    folder: Path, *, notes: list[str] | None = None, started: dict[str, object] | None = None, **changed: object
) -> Measurements:
    counts = {**COUNTED, "requests": REQUESTS, "latency": LATENCY, "others": OTHERS, **changed}
    (folder / AlignmentProbe.output).write_bytes(
        orjson.dumps(STARTED | (started or {})) + b"\n" + orjson.dumps(counts) + b"\n"
    )
    (folder / NOTES).write_bytes(orjson.dumps(notes or []))
    return AlignmentProbe().parse(ProbeRecord(folder, WINDOW, VDA))


def values(seen: Measurements) -> dict[str, float]:
    assert seen.metrics["metric"].is_unique().all()
    return dict(seen.metrics.select("metric", "value").iter_rows())


def test_times_of_a_kind_that_is_not_known_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"trace.jsonl:2: is no line of the tracer"):
        saw(tmp_path, latency=[["vda", "write", "other", 1, 2, 3]])


def test_requests_bytes_and_latencies_are_counted_by_operation(tmp_path: Path) -> None:
    found = values(saw(tmp_path))
    written = 7 * 16384 + 4096
    assert (found["write.requests"], found["write.bytes"], found["write.size"]) == (8, written, written / 8)
    assert found["write.aligned.16k"] == 6 / 8
    assert found["write.aligned.16k.bytes"] == 6 * 16384 / written
    assert found["write.offset-aligned.16k"] == 7 / 8  # offset 0 is aligned to anything
    assert found["write.below.16k"] == 1
    assert found["write.unit.amplification.16k"] == pytest.approx(9 * 16384 / written)
    assert found["read.aligned.64k"] == 1
    assert "flush.aligned.16k" not in found
    assert (found["flush.requests"], found["discard.requests"], found["discard.bytes"]) == (3, 1, 1 << 20)
    assert "flush.bytes" not in found
    assert (found["write.fua.requests"], found["write.meta.requests"], found["write.meta.bytes"]) == (1, 1, 4096)
    assert (found["write.merges.back"], found["write.merges.front"], found["discard.errors"]) == (5, 0, 1)
    assert "discard.splits" not in found
    assert found["write.service.p50"] == pytest.approx(1056e-9)
    assert found["write.service.p99"] == pytest.approx(67584e-9)
    assert found["write.service.max"] == pytest.approx(69632e-9)
    assert found["write.queued.p50"] == pytest.approx(102e-9)
    found = values(saw(tmp_path, requests=[], latency=[], others=[]))
    assert found == {"read.requests": 0, "read.bytes": 0, "write.requests": 0, "write.bytes": 0}


def test_each_histogram_has_every_data_request_once(tmp_path: Path) -> None:
    seen = saw(tmp_path)
    assert dict(seen.histograms.schema) == HISTOGRAM_COLUMNS
    sums = dict(seen.histograms.group_by("metric").agg(pl.col("count").sum()).iter_rows())
    for name in ("granularity", "alignment", "offset-alignment", "length-alignment"):
        assert (sums[f"write.{name}"], sums[f"read.{name}"]) == (8, 2)
        assert f"flush.{name}" not in sums
    offsets = seen.histograms.filter(pl.col("metric") == "read.offset-alignment")
    assert offsets.select("lower", "upper").rows() == [(1 << 30, 1 << 31)]  # 1 TiB stands as 1 GiB and more
    lengths = seen.histograms.filter(pl.col("metric") == "write.granularity")
    assert lengths.select("lower", "upper", "count").rows() == [(4096, 4608, 1), (16384, 16896, 7)]


def test_requests_hook_and_reason_are_kept_and_what_is_missing_or_costly_is_a_warning(tmp_path: Path) -> None:
    seen = saw(tmp_path)
    assert seen.requests["count"].sum() == 14
    assert seen.facts == {"disks": ["vda"], "hook": "tp_btf", "why": "this kernel has BTF"}
    assert seen.warnings == ()
    seen = saw(tmp_path, started={"hook": "tracepoint", "reason": "there is no /sys/kernel/btf/vmlinux"})
    assert (seen.facts["hook"], seen.facts["why"]) == ("classic tracepoint", "there is no /sys/kernel/btf/vmlinux")
    assert seen.warnings == (
        "block I/O was counted at the classic tracepoints, which costs more for each request: "
        "there is no /sys/kernel/btf/vmlinux",
    )
    seen = saw(tmp_path, notes=["dm-0 has no requests of its own"], lost={**LOST, "full": 2})
    assert seen.warnings[0] == "dm-0 has no requests of its own"
    assert seen.warnings[1].startswith("2 requests did not fit")
    (tmp_path / AlignmentProbe.output).unlink()
    (tmp_path / NOTES).write_bytes(b'["block I/O was not watched: no BPF"]')
    seen = AlignmentProbe().parse(ProbeRecord(tmp_path, WINDOW, VDA))
    assert seen.warnings == ("block I/O was not watched: no BPF",)
    assert seen.metrics.is_empty()


@pytest.mark.parametrize("text", [b"", b"{", b"3", b"[3]"])
def test_damaged_notes_are_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NOTES).write_bytes(text)
    with pytest.raises(ParseError, match=f"{NOTES}:1: "):
        AlignmentProbe().parse(ProbeRecord(tmp_path, WINDOW, VDA))


@pytest.mark.parametrize(
    ("options", "own", "disks"),
    [({}, ("vda",), ("vda",)), ({}, ("vda", "vdb"), ("vda", "vdb")), ({}, (), None), ({}, None, None),
     ({"disks": ["vdb", "vdc1"]}, ("vda",), ("vdb", "vdc1")), ({"disks": "all"}, ("vda",), ()),
     ({"disks": "all"}, None, ())],
)  # fmt: skip
def test_the_disks_are_those_named_or_else_the_subjects(
    options: dict[str, object], own: tuple[str, ...] | None, disks: tuple[str, ...] | None
) -> None:
    assert AlignmentProbe.model_validate(options).watched(Subject(group="vm", disks=own)) == disks


@pytest.mark.parametrize(
    ("options", "ends"),
    [({}, ["load"]), ({"at": "load"}, ["load"]), ({"at": "below"}, ["below"]), ({"at": "each"}, ["load", "below"])],
)
def test_it_watches_disks_at_the_end_that_is_asked_for(options: dict[str, object], ends: list[End]) -> None:
    probe = AlignmentProbe.model_validate(options)
    both: tuple[End, End] = ("load", "below")
    assert [end for end in both if probe.watches_at(end, {"machine", "disks"})] == ends
    assert [end for end in both if probe.watches_at(end, {"machine"})] == []
    named = AlignmentProbe.model_validate({**options, "disks": "sda"})
    assert [end for end in both if named.watches_at(end, {"machine"})] == ends, "a disk that is named may be anywhere"


def on(disk: str) -> Subject:
    return Subject(group="here", disks=(disk,))


class TestOnThisMachine:
    pytestmark = pytest.mark.needs("root", "fio")

    def test_all_of_a_load_is_seen_and_nothing_else(self, tmp_path: Path) -> None:
        requests = [("write", n * 16384, 16384) for n in range(50)] + [("read", 512, 1024)]
        with loop_disk(tmp_path / "disk.img", 64 * 1024**2) as disk:
            load = partial(issue, disk, requests, tmp_path)
            seen = watched(AlignmentProbe(by_comm=True), tmp_path, load=load, subject=on(disk.name))
        found = values(seen)
        assert (found["write.requests"], found["write.aligned.16k"], found["read.requests"]) == (50, 1, 1)
        assert "fio" in seen.requests["comm"].to_list()

    def test_a_disk_that_is_not_there_is_named_and_the_load_goes_on(self, tmp_path: Path) -> None:
        seen = watched(AlignmentProbe(disks=("no-such-disk",)), tmp_path)
        (warning,) = seen.warnings
        assert "no-such-disk" in warning
        assert not (tmp_path / AlignmentProbe.output).exists()

    def test_events_are_kept_one_by_one(self, tmp_path: Path) -> None:
        with loop_disk(tmp_path / "disk.img", 64 * 1024**2) as disk:
            load = partial(issue, disk, [("write", 0, 4096)] * 7, tmp_path, depth=1)
            watched(AlignmentProbe(events=True), tmp_path, load=load, subject=on(disk.name))
        events = [
            line for line in (tmp_path / AlignmentProbe.output).read_bytes().splitlines() if line.startswith(b"[")
        ]
        # Whoever looks through the devices of this machine, such as another test, reads from this one as well.
        assert sum(b'"write"' in event for event in events) == 7

    def test_a_disk_that_makes_no_requests_is_named(self, tmp_path: Path) -> None:
        bio_based = [
            path.name
            for path in Path("/sys/class/block").iterdir()
            if not (path / "mq").exists() and not (path / "partition").exists()
        ]
        if not bio_based:
            pytest.skip("this machine has no disk that is bio-based (zram, dm, md)")
        seen = watched(AlignmentProbe(), tmp_path, subject=on(bio_based[0]))
        (warning,) = seen.warnings
        assert f"{bio_based[0]} makes no requests of its own" in warning

    def test_a_partition_off_the_boundary_is_warned_of_and_one_on_it_is_not(self, tmp_path: Path) -> None:
        with loop_disk(tmp_path / "disk.img", 64 * 1024**2, (2048, 8192), (16385, 8192)) as disk:
            first, second = (watched(AlignmentProbe(), tmp_path, subject=on(f"{disk.name}p{n}")) for n in (1, 2))
        assert first.warnings == ()
        (warning,) = second.warnings
        assert warning.startswith(f"{disk.name}p2 begins at a multiple of 512, which is on no boundary of 4k")

    def test_no_tracer_outlives_the_watch(self, tmp_path: Path) -> None:
        class Broken(Exception):
            pass

        async def check() -> list[str]:
            async with local_node("here") as node:
                with pytest.raises(Broken):
                    async with AlignmentProbe(disks=("all",)).watch(ProbeContext(node, tmp_path, VDA)):
                        raise Broken
                children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
                found = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
                return [command for command in found if not command.startswith("storlab-agent\0guard\0")]

        assert asyncio.run(check()) == []
        assert (tmp_path / AlignmentProbe.output).exists()


EVENT = ["vda", "write", "", 4096, 8, 1, "fio", 3]

disks = st.sampled_from(["vda", "loop0"])
operations = st.sampled_from(["read", "write", "discard", "flush"])
numbers = st.integers(0, 1000)
requests = st.tuples(
    *(disks, operations, st.sampled_from(["", "sync", "fua+meta"]), st.sampled_from([0, 512, 4096, 24576])),
    *(st.sampled_from([0, 512, 16384, 1 << 40]), st.sampled_from([None, "fio"]), numbers),
    st.lists(numbers, min_size=5, max_size=5),
)
edges = st.integers(0, 40).map(lambda at: (1000 + 64 * at, 1064 + 64 * at))
latency = st.tuples(disks, operations, st.sampled_from(["service", "queued"]), edges, numbers).map(
    lambda row: (*row[:3], *row[3], row[4])
)
others = st.tuples(disks, operations, st.sampled_from(["back_merge", "split", "error"]), numbers)
counts = st.fixed_dictionaries(
    {**{name: st.just(value) for name, value in COUNTED.items()}, "final": st.booleans()}
    | {"requests": st.lists(requests, max_size=8), "latency": st.lists(latency, max_size=8)}
    | {"others": st.lists(others, max_size=4)}
)
texts = st.tuples(st.booleans(), st.none() | counts).map(lambda drawn: text(*drawn))
traces: st.SearchStrategy[bytes | None] = texts | st.just(b"rubbish\n") | st.none()


def text(event: bool, counted: dict[str, object] | None) -> bytes:
    after = [EVENT] * event + [counted] * (counted is not None)
    return b"".join(orjson.dumps(line) + b"\n" for line in [STARTED, *after])


def left(folder: Path, trace: bytes | None) -> ProbeRecord:
    folder.mkdir()
    (folder / NOTES).write_bytes(orjson.dumps([f"a note of {folder.name}"]))
    if trace is not None:
        (folder / AlignmentProbe.output).write_bytes(trace)
    return ProbeRecord(folder, Window(0.0, 1.0), Subject(group="vm", disks=("vda",)))


def told(found: Measurements | StorlabError) -> object:
    if isinstance(found, StorlabError):
        return str(found)
    frames = (found.metrics, found.histograms, found.requests)
    return [(frame.schema, repr(frame.rows())) for frame in frames], found.warnings, found.facts  # NaN is itself here


@settings(deadline=None, max_examples=25)
@given(st.lists(traces, max_size=4))
def test_traces_of_many_trials_at_once_are_what_each_is_by_itself(each: list[bytes | None]) -> None:
    probe = AlignmentProbe()
    with tempfile.TemporaryDirectory() as made:
        trials = [left(Path(made) / str(number), trace) for number, trace in enumerate(each)]
        at_once = [told(found) for found in probe.parse_many(trials)]
        assert at_once == [told(found) for trial in trials for found in probe.parse_many([trial])]
