"""Probe ``profile``: shares of functions from samples, stacks folded and drawn, and that they are perf-record(1)'s."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from storlab.base.errors import ParseError
from storlab.base.programs import agent_path
from storlab.measurements import Measurements
from storlab.probes.base import NOTES, ProbeRecord, Window
from storlab.probes.profile import FOLDED, ProfileProbe
from storlab.probes.stacks import LINES as AGENT_LINES
from storlab.probes.stacks import NAME, Box, Profile, boxes, folded, gathered, profile, read_output
from storlab.report.charts.shares import icicle_chart
from storlab.report.charts.theme import to_svg

from . import HERE, watched

SECOND = 1_000_000_000
STARTED = {
    "event": "started", "clock": "cpu-clock", "frequency": 99, "cpus": 2, "monotonic_ns": 9 * SECOND, "realtime_ns": 1,
}  # fmt: skip
END = {"event": "end", "monotonic_ns": 13 * SECOND, "nameless": None}
WRITE = [["main", "fio"], ["ksys_write", "kernel"], ["zio_execute", "module:zfs"]]
STACKS = [
    {"event": "stack", "id": 0, "comm": "fio", "group": "kernel", "frames": WRITE},
    {"event": "stack", "id": 1, "comm": "fio", "group": "user", "frames": [["main", "fio"], ["fill", "libc.so.6"]]},
    {"event": "stack", "id": 2, "comm": "swapper/0", "group": "idle", "frames": [["default_idle", "kernel"]]},
    {"event": "stack", "id": 3, "comm": "fio", "group": "kernel", "frames": WRITE[:2]},
]


def samples(second: float, *counts: tuple[int, int], lost: int = 0) -> dict[str, object]:
    return {"event": "samples", "monotonic_ns": round(second * SECOND), "lost": lost, "counts": counts}


LINES = [STARTED, samples(10, (2, 50)), samples(11, (0, 6), (1, 3)), samples(12, (3, 1), (2, 10)), *STACKS, END]


def printed(*lines: dict[str, object]) -> bytes:
    return b"".join(orjson.dumps(each) + b"\n" for each in lines)


def record(raw: Path, lines: Sequence[dict[str, object]] = LINES) -> ProbeRecord:
    """As the probe leaves it; the load ran from the eleventh second on."""
    (raw / NAME).write_bytes(printed(*lines))
    (raw / NOTES).write_bytes(b"[]")
    return ProbeRecord(raw, Window(10.0, 12.0), HERE)


def seen(lines: Sequence[dict[str, object]] = LINES) -> Profile:
    return profile(gathered(AGENT_LINES.decode_all(printed(*lines))), 10.0, 12.0)


def test_functions_are_shares_of_busy_time_and_groups_of_all(tmp_path: Path) -> None:
    found = ProfileProbe().parse(record(tmp_path))
    assert found.totals() == {
        "samples": 20, "share.kernel": 0.35, "share.user": 0.15, "share.idle": 0.5,
        "self.zio_execute": 0.6, "self.libc.so.6/fill": 0.3, "self.ksys_write": 0.1,
        "total.fio/main": 1.0, "total.ksys_write": 0.7, "total.zio_execute": 0.6, "total.libc.so.6/fill": 0.3,
    }  # fmt: skip
    assert found.warnings == ()
    assert found.facts == {"clock": "cpu-clock", "frequency": 99}


def test_a_recursive_function_counts_once_and_an_unknown_place_not_at_all(tmp_path: Path) -> None:
    frames = [["walk", "kernel"], ["[unknown]", "[unknown]"], ["walk", "kernel"]]
    stack = {"event": "stack", "id": 0, "comm": "find", "group": "kernel", "frames": frames}
    found = ProfileProbe().parse(record(tmp_path, [STARTED, samples(11, (0, 4)), stack, END])).totals()
    assert found["total.walk"] == found["self.walk"] == 1.0
    assert not [name for name in found if "unknown" in name]


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    end = {**END, "nameless": "the kernel shows none"}
    found = ProfileProbe().parse(record(tmp_path, [STARTED, samples(11, lost=7), end]))
    assert found.metrics.is_empty()
    assert found.warnings == (
        "profile: 7 samples found no room, so shares are of the others",
        "profile: functions of the kernel have no names: the kernel shows none",
        "profile: the measured phase was too short for a sample",
    )
    (tmp_path / NAME).unlink()
    (tmp_path / NOTES).write_bytes(b'["profile: not allowed"]')
    assert ProfileProbe().parse(ProbeRecord(tmp_path, Window(0, 1), HERE)) == Measurements(
        warnings=("profile: not allowed",)
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "has not started: there is not one whole line"),
        (LINES[:-1], "did not end cleanly"),
        ([STARTED, STARTED, END], "only the first line says when it started"),
        ([*LINES[:-1], STACKS[0], END], "a line is there twice"),
        ([STARTED, samples(11, (9, 1)), END], "stack 9 was seen and is not described"),
        ([STARTED, samples(12), samples(11), END], "time ran backwards"),
        ([STARTED, samples(11, (0, -1)), *STACKS, END], "none of the agent's|no line of the agent's"),
        ([STARTED, {**STACKS[0], "group": "guest"}, END], "none of the agent's|no line of the agent's"),
    ],
)
def test_damaged_output_is_refused(tmp_path: Path, lines: Sequence[dict[str, object]], said: str) -> None:
    with pytest.raises(ParseError, match=said):
        ProfileProbe().parse(record(tmp_path, lines))


def test_stacks_are_folded_as_flame_graphs_take_them() -> None:
    assert list(folded(seen())) == [
        "fio;main;fill 3",
        "fio;main;ksys_write_[k] 1",
        "fio;main;ksys_write_[k];zio_execute_[k] 6",
        "swapper/0;[idle] 10",
    ]


def test_names_that_programs_chose_make_no_stacks_of_their_own(tmp_path: Path) -> None:
    frames = [["main\nfio;fake 9", "a.out"], ["x\x1b[2J", "a.out"]]
    stack = {"event": "stack", "id": 0, "comm": "a;b\nc 7", "group": "user", "frames": frames}
    lines = [STARTED, samples(11, (0, 4)), stack, END]
    assert list(folded(seen(lines))) == ["a:b c 7;main fio:fake 9;x\ufffd[2J 4"]
    found = ProfileProbe().parse(record(tmp_path, lines)).totals()
    assert found["self.a.out/x\ufffd[2J"] == 1.0 and all(name.isprintable() for name in found)


def test_boxes_are_as_wide_as_their_shares_and_lie_within_their_callers() -> None:
    found = boxes([seen(), seen()])
    assert found[0] == Box("fio", "command", 0, 0.0, 0.5)
    by_name = {box.name: box for box in found}
    assert by_name["idle"] == Box("idle", "idle", 0, 0.5, 1.0)
    write, leaf = by_name["ksys_write"], by_name["zio_execute"]
    assert (write.left, write.kind) == (0.0, "kernel")
    assert (write.right, leaf.right) == pytest.approx((0.35, 0.3))
    assert (leaf.left, leaf.depth) == (0.0, 3)
    assert boxes([]) == []


def test_the_chart_has_each_name_that_has_room() -> None:
    drawn = to_svg(icicle_chart(boxes([seen()])), width=1040)
    assert all(name in drawn for name in ("fio", "main", "ksys_write", "zio_execute", "fill", "idle"))


PLANTED = Path(__file__).parent / "cases" / "planted_cpu.c"
SAMPLES = 3 * 99


def share_of_much(much: float, little: float) -> float:
    return much / (much + little)


@pytest.mark.needs("root", "perf", "clang")
def test_shares_equal_those_of_perf_record_within_the_error_of_samples(tmp_path: Path) -> None:
    """A program of which it is known what its two functions take, with what they call: three quarters, and one."""
    program = str(tmp_path / "planted")
    options = ["-O1", "-fno-omit-frame-pointer", "-o", program]
    subprocess.run(["clang", *options, str(PLANTED)], check=True)
    data = str(tmp_path / "perf.data")
    record = ["perf", "record", "-q", "-o", data, "-e", "cpu-clock", "-F", "99", "-g", program, "3", "3"]
    subprocess.run(record, check=True, capture_output=True)
    report = ["perf", "report", "-q", "-i", data, "--stdio", "--children", "-g", "none", "--sort", "sym"]
    text = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*([\d.]+)%\s+[\d.]+%\s+\[\.\]\s+(\w+)", text, re.MULTILINE)
    theirs = {name: float(share) for share, name in found}

    watched(ProfileProbe(), tmp_path, program, "3", "3")
    _, total = profile(read_output(tmp_path / NAME)).functions()
    ours = share_of_much(total["planted/much"], total["planted/little"])
    error = 5 * math.sqrt(0.75 * 0.25 / SAMPLES)
    assert ours == pytest.approx(0.75, abs=error)
    assert ours == pytest.approx(share_of_much(theirs["much"], theirs["little"]), abs=math.sqrt(2) * error)
    assert total["planted/main"] == pytest.approx(SAMPLES, rel=0.15), "three seconds of CPU, 99 times each"
    assert "planted;" in (tmp_path / FOLDED).read_text()


INSIDE = """
mount -t proc proc /proc
"$1" 1 3 &
exec "$0" profile --for 1.5
"""


@pytest.mark.needs("root", "clang")
def test_in_a_pid_namespace_programs_are_found_by_their_numbers_there(tmp_path: Path) -> None:
    """One within it, and one outside, whose number there is nobody's or another's."""
    inside, outside = (str(tmp_path / name) for name in ("inside", "outside"))
    for program in (inside, outside):
        subprocess.run(["clang", "-O1", "-fno-omit-frame-pointer", "-o", program, str(PLANTED)], check=True)
    apart = ["unshare", "--pid", "--mount", "--fork", "sh", "-ec", INSIDE, str(agent_path()), inside]
    with subprocess.Popen([outside, "1", "30"]) as other:
        printed = subprocess.run(apart, capture_output=True, check=True).stdout
        other.kill()
    names = {name: set[str]() for name in ("inside", "outside")}
    for stack in gathered(AGENT_LINES.decode_all(printed)).stacks.values():
        if stack.comm in names and stack.group == "user":
            names[stack.comm] |= {function for function, _ in stack.frames}
    assert "work" in names["inside"]
    assert names["outside"] == {"[unknown]"}
