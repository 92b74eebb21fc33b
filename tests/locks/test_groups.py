"""Groups of callers: which functions they have, the metrics that follow, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from storlab.locks.groups import group_of
from storlab.locks.metrics import METRICS
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec, Specs
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.locks import NAME, LocksProbe
from storlab.probes.subject import Subject
from storlab.records.derived.lock_waits import lock_shares, lock_waits_per_operation

from .lines import counts, printed, waits

GROUPS = {
    "metaslab": ("metaslab_*", "zio_dva_*", "zio_allocate_dispatch"),
    "vdev-queue": ("vdev_queue_*",),
    "other-zio": ("zio_*",),
}


def probed(raw: Path, *rows: list[object], groups: dict[str, tuple[str, ...]] = GROUPS) -> Measurements:
    (raw / NAME).write_bytes(printed(counts(*rows)))
    return LocksProbe(groups=groups).parse(ProbeRecord(raw, Window(0, 1), Subject(group="host")))


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
    found = probed(tmp_path, *rows).totals()
    assert (found["waits.metaslab"], found["waits.other-zio"], found["waits.vdev-queue"]) == (5, 100, 0)
    assert found["wait-time.other-zio"] == pytest.approx(100e-6)
    assert found["waits"] == 112


def test_members_of_families_are_those_of_groups_or_of_callers(tmp_path: Path) -> None:
    declared = Specs(LocksProbe(groups=GROUPS).declares())
    found = probed(tmp_path, waits("metaslab_sync", 3)).totals()
    assert {declared.find(name).family for name in found if name.startswith("waits.")} == {"group", "caller"}
    assert declared.find("waits.metaslab").noun == "waits for locks by the group metaslab"
    assert Specs(METRICS).find("waits.mutex.metaslab_sync").family == "caller"
    assert not [spec for spec in LocksProbe().declares() if "group" in (spec.word, spec.family)]


def test_shares_and_waits_for_each_operation_are_of_all_machines_together(tmp_path: Path) -> None:
    load = MetricSpec("ios", "1", quantity="operations")
    loads = [Measurements(metric_frame([load.value(200)]), declared=(load,))]
    one = probed(tmp_path, waits("metaslab_sync", 3, time=1000), waits("vdev_queue_io", 1, time=1000), waits("f", 99))
    other = probed(tmp_path, waits("vdev_queue_io", 4, time=2000))
    shares = {each.metric: each.value for each in lock_shares([one, other])}
    assert shares["waits-share.metaslab"] == pytest.approx(3 / 8)
    assert shares["waits-share.other-zio"] == 0
    times = [shares[f"wait-time-share.{name}"] for name in GROUPS]
    assert sum(times) == pytest.approx(1) and times[1] > times[0]
    per = {each.metric: each.value for each in lock_waits_per_operation(loads, [one, other])}
    assert per["waits-per-operation.vdev-queue"] == pytest.approx(5 / 200)
    assert per["waits-per-operation.mutex.vdev_queue_io"] == pytest.approx(5 / 200)


def test_where_no_group_waited_there_are_no_shares(tmp_path: Path) -> None:
    assert lock_shares([probed(tmp_path, waits("f", 9))]) == []
    assert lock_shares([probed(tmp_path, waits("f", 9), groups={})]) == []
    assert lock_shares([]) == []


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a.b": ["f"]}, '"a.b" is not a valid name of a group: write lowercase letters, digits, hyphens'),
        ({"A": ["f"]}, "is not a valid name of a group"),
        ({"a": []}, 'the group a has no functions: write patterns, such as ["a_*"]'),
        ({"a": ["f?"]}, '"f?" matches no function of the kernel: write a name, with * for any characters'),
        ({"a": ["(f|g)+"]}, "matches no function of the kernel"),
        ({"a": ["f" * 129]}, "matches no function of the kernel"),
        ({"a": ["f" * 120] * 40}, "the patterns of a can't be matched: it has more than 4096 characters"),
        ({f"g{n}": ["f"] for n in range(17)}, "at most 16 items"),
    ],
)
def test_what_matches_no_function_is_refused_with_what_to_write_instead(
    groups: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        LocksProbe.model_validate({"groups": groups})
    assert message in str(refused.value)


def test_many_stars_take_no_time_that_grows_with_their_number() -> None:
    groups = {"a": ("*a" * 60 + "b",) * 8}
    began = time.thread_time()
    assert group_of("a" * 512, groups) is None
    assert time.thread_time() - began < 1
