"""What the agent prints of lock waits: what is understood, what is refused, and the metrics of callers and groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest
from pydantic import ValidationError

from probes import derived
from storlab.base.errors import ParseError
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Specs
from storlab.probes.base import NOTES, ProbeRecord, Window
from storlab.probes.locks.metrics import (
    LINES,
    METRICS,
    Counts,
    Waiter,
    by_caller,
    group_of,
    histograms,
    read_output,
    values,
)
from storlab.probes.locks.probe import LocksProbe
from storlab.probes.subject import Subject

from .lines import counts, printed, waits


def counted(*rows: list[object], **more: object) -> Counts:
    (_, found) = LINES.decode_all(printed(counts(*rows, **more)))  # type: ignore[arg-type]
    assert isinstance(found, Counts)
    return found


def probed(raw: Path, text: bytes, groups: Mapping[str, tuple[str, ...]] | None = None) -> Measurements:
    (raw / LocksProbe.output).write_bytes(text)
    return LocksProbe(groups=groups or {}).parse(ProbeRecord(raw, Window(0, 1), Subject(group="host")))


def test_callers_are_metrics_by_type_of_lock_and_function(tmp_path: Path) -> None:
    rows = (
        waits("zio_dva_throttle", 3, time=1000, waiter="kernel", slept=2),
        waits("zio_dva_throttle", 2, time=5000, waiter="own"),
        waits("dmu_tx_assign", 1, lock="rwsem-read", time=70_000),
        waits(None, 4, lock="spinlock", time=100),
    )
    seen = probed(tmp_path, printed(counts(*rows, locks={"zio_dva_throttle": 4})))
    found = seen.totals()
    assert found["waits"] == 10 and found["wait-time"] == pytest.approx(83.4e-6)
    assert (found["waits.mutex.zio_dva_throttle"], found["locks.mutex.zio_dva_throttle"]) == (5, 4)
    assert found["wait-time.mutex.zio_dva_throttle"] == pytest.approx(13e-6)
    assert found["waits.spinlock.unknown"] == 4
    assert 65536e-9 <= found["rwsem-read.wait.p50"] <= 131072e-9
    assert seen.warnings == ()
    assert dict(seen.histograms.group_by("metric").agg(count=seen.histograms["count"].sum()).iter_rows()).keys() == {
        "mutex.wait", "rwsem-read.wait", "spinlock.wait",
    }  # fmt: skip
    declared = Specs(METRICS)
    assert all(declared.find(name).unit for name in found), "each is declared"


def test_the_longest_and_the_most_frequent_callers_become_metrics() -> None:
    rows = [waits(f"long_{n}", 1, time=10**6 + n) for n in range(600)] + [
        waits(f"often_{n}", 100 + n) for n in range(600)
    ]
    named = {each.metric for each in values(counted(*rows))}
    assert "waits.mutex.long_599" in named and "waits.mutex.often_599" in named
    assert "waits.mutex.long_0" not in named and "waits.mutex.often_0" not in named
    assert len([name for name in named if name.startswith("waits.")]) == 1000


def test_functions_of_one_name_in_two_modules_are_one_and_none_is_dropped() -> None:
    other = waits("f", 5)
    other[0] = ["f", "xfs", "mutex"]
    found = {each.metric: each.value for each in values(counted(waits("f", 3), other))}
    assert found["waits.mutex.f"] == found["waits"] == 8
    assert found["wait-time.mutex.f"] == pytest.approx(found["wait-time"])


def test_waits_are_told_apart_by_who_waited() -> None:
    found = counted(waits("f", 3, waiter="own"), waits("f", 5, waiter="kernel"), waits("f", 7))
    assert [each.count for each in by_caller(found).values()] == [15]
    own: tuple[Waiter, ...] = ("own",)
    assert [each.count for each in by_caller(found, own).values()] == [3]
    assert histograms(found)["count"].to_list() == [15]


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    lost = {"full": 1, "begun": 2, "ends": 3, "locks": 4, "missed": 5}
    seen = probed(tmp_path, printed(counts(waits("f"), lost=lost, final=False)))
    assert [each.split(" ")[1] for each in seen.warnings[1:]] == ["1", "2", "3", "5", "4"]
    assert seen.warnings[0] == "locks: the lock tracer did not end cleanly: what came after its last count is missing"
    seen = probed(tmp_path, printed(counts(waits("f"), lost={"missed": None})))
    assert seen.warnings == ("locks: this kernel does not report how often it could not run the lock tracer",)


def test_without_counts_the_reason_is_said(tmp_path: Path) -> None:
    (tmp_path / NOTES).write_bytes(b'["locks: lock waits can\'t be traced: this kernel has no BTF"]')
    seen = LocksProbe().parse(ProbeRecord(tmp_path, Window(0, 1), Subject(group="host")))
    assert seen.warnings == ("locks: lock waits can't be traced: this kernel has no BTF",)
    assert probed(tmp_path, printed()).totals()["waits"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "x:1: the lock tracer has not started: there is not one whole line"),
        (printed() + printed(), "x:2: only the first line says when it started, and it must"),
        (b'{"event":"counts"}\n', "x:1: is no line of the lock tracer: "),
        (printed(counts(waits("evil\x1b[2J"))), "x:2: is no line of the lock tracer: "),
        (printed(counts(waits("f", lock="mutexes"))), "x:2: is no line of the lock tracer: "),
        (printed(counts([["f", None, "mutex"], "own", 1, 0, 1, [[2, 2, 1]]])), "x:2: has a bin of times of no width"),
    ],
)
def test_what_the_agent_never_prints_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ParseError) as refused:
        read_output(BytesIO(text), "x")
    assert str(refused.value).startswith(message)


def test_waits_are_divided_by_the_operations_of_all_loads() -> None:
    load = MetricSpec("ios", "1", quantity="operations")
    loads = [Measurements(metric_frame([load.value(number)]), declared=(load,)) for number in (100, 300)]
    seen = [Measurements(metric_frame(values(counted(waits("f", n, time=400))))) for n in (10, 30)]
    found = derived(LocksProbe(), seen, loads)
    assert found == pytest.approx({
        "waits-per-operation": 0.1, "wait-time-per-operation": 40e-9,
        "waits-per-operation.mutex.f": 0.1, "wait-time-per-operation.mutex.f": 40e-9,
    })  # fmt: skip
    assert derived(LocksProbe(), seen, [Measurements()]) == derived(LocksProbe(), seen) == {}


GROUPS = {
    "metaslab": ("metaslab_*", "zio_dva_*", "zio_allocate_dispatch"),
    "vdev-queue": ("vdev_queue_*",),
    "other-zio": ("zio_*",),
}


def grouped(raw: Path, *rows: list[object]) -> Measurements:
    return probed(raw, printed(counts(*rows)), GROUPS)


@pytest.mark.parametrize(
    ("function", "group"),
    [
        ("metaslab_alloc_dva", "metaslab"),
        ("zio_dva_throttle", "metaslab"),
        ("zio_allocate_dispatch", "metaslab"),
        ("zio_allocate_dispatch_x", "other-zio"),
        ("vdev_queue_io", "vdev-queue"),
        ("a_vdev_queue_io", None),
        ("dmu_tx_wait", None),
        ("unknown", None),
    ],
)
def test_a_function_belongs_to_the_first_group_that_has_it(function: str, group: str | None) -> None:
    assert group_of(function, GROUPS) == group


def test_a_pattern_is_nothing_but_names_and_stars() -> None:
    assert group_of("a$b", {"g": ("a$b",)}) == "g"
    assert group_of("axb", {"g": ("a$b",)}) is None
    assert group_of("one_two_three", {"g": ("*two*",)}) == group_of("two", {"g": ("*two*",)}) == "g"


def test_the_waits_of_a_group_are_those_of_all_its_callers(tmp_path: Path) -> None:
    many = [waits(f"zio_{n}", 1, time=1000) for n in range(100)]
    rows = (waits("metaslab_sync", 3, time=9000), waits("metaslab_sync", 2, lock="rwsem-read"), *many, waits("f", 7))
    found = grouped(tmp_path, *rows).totals()
    assert (found["waits.metaslab"], found["waits.other-zio"], found["waits.vdev-queue"]) == (5, 100, 0)
    assert found["wait-time.other-zio"] == pytest.approx(100e-6)
    assert found["waits"] == 112


def test_members_of_families_are_those_of_groups_or_of_callers(tmp_path: Path) -> None:
    declared = Specs(LocksProbe(groups=GROUPS).declares())
    found = grouped(tmp_path, waits("metaslab_sync", 3)).totals()
    assert {declared.find(name).family for name in found if name.startswith("waits.")} == {"group", "caller"}
    assert declared.find("waits.metaslab").noun == "waits for locks by the group metaslab"
    assert Specs(METRICS).find("waits.mutex.metaslab_sync").family == "caller"
    assert not [spec for spec in LocksProbe().declares() if "group" in (spec.word, spec.family)]


def test_shares_and_waits_for_each_operation_are_of_all_machines_together(tmp_path: Path) -> None:
    load = MetricSpec("ios", "1", quantity="operations")
    loads = [Measurements(metric_frame([load.value(200)]), declared=(load,))]
    one = grouped(tmp_path, waits("metaslab_sync", 3, time=1000), waits("vdev_queue_io", 1, time=1000), waits("f", 99))
    other = grouped(tmp_path, waits("vdev_queue_io", 4, time=2000))
    shares = derived(LocksProbe(), [one, other])
    assert shares["waits-share.metaslab"] == pytest.approx(3 / 8)
    assert shares["waits-share.other-zio"] == 0
    times = [shares[f"wait-time-share.{name}"] for name in GROUPS]
    assert sum(times) == pytest.approx(1) and times[1] > times[0]
    per = derived(LocksProbe(), [one, other], loads)
    assert per["waits-per-operation.vdev-queue"] == pytest.approx(5 / 200)
    assert per["waits-per-operation.mutex.vdev_queue_io"] == pytest.approx(5 / 200)


def test_where_no_group_waited_there_are_no_shares(tmp_path: Path) -> None:
    assert derived(LocksProbe(), [grouped(tmp_path, waits("f", 9))]) == {}
    assert derived(LocksProbe(), [probed(tmp_path, printed(counts(waits("f", 9))))]) == {}
    assert derived(LocksProbe(), []) == {}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["f" * 129]}, "matches no function of the kernel"),
        ({"a": ["f" * 120] * 40}, "the patterns of a can't be matched: it has more than 4096 characters"),
        ({f"g{n}": ["f"] for n in range(17)}, "at most 16 items"),
    ],
)
def test_patterns_that_are_too_long_or_too_many_are_refused(groups: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        LocksProbe.model_validate({"groups": groups})
    assert message in str(refused.value)


def test_many_stars_take_no_time_that_grows_with_their_number() -> None:
    groups = {"a": ("*a" * 60 + "b",) * 8}
    began = time.thread_time()
    assert group_of("a" * 512, groups) is None
    assert time.thread_time() - began < 1
