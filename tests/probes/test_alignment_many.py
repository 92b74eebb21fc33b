"""Probe ``alignment``: traces of many trials at once are what each of them is by itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.errors import StorlabError
from storlab.measurements import Measurements
from storlab.probes.alignment.probe import NOTES, TRACE, AlignmentProbe
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.subject import Subject

STARTED = {"event": "started", "hook": "btf", "monotonic_ns": 1, "realtime_ns": 1, "disks": ["vda"], "latency": True}
EVENT = ["vda", "write", "", 4096, 8, 1, "fio", 3]
LOST = {"full": 0, "missed": 0, "untimed": 0, "events": 0}

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
    {
        "event": st.just("counts"),
        "final": st.booleans(),
        "monotonic_ns": st.just(2),
        "realtime_ns": st.just(2),
        "requests": st.lists(requests, max_size=8),
        "latency": st.lists(latency, max_size=8),
        "others": st.lists(others, max_size=4),
        "lost": st.just(LOST),
    }
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
        (folder / TRACE).write_bytes(trace)
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
