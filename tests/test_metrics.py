"""Metrics as they are declared: families and their members, what a study means by a name, and what is saved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.errors import RecordsError
from storlab.metrics import Declarations, MetricSpec, Specs, latencies, named, percentiles_of
from storlab.run.planning.metrics import metrics_of_study
from storlab.study.study import parse_study

DISK = MetricSpec("disk.{disk}.writes", "1", across="sum", of="disk.{disk}", statistic="count")
names = st.from_regex(r"[a-z][a-z.]{0,12}", fullmatch=True)
specs = st.builds(
    MetricSpec,
    names,
    st.sampled_from(["1", "s", "B/s"]),
    st.sampled_from(["higher", "lower", "neither"]),
    st.sampled_from(["sum", "max", "min", "mean", "merge", "none"]),
    series=st.booleans(),
    percentile=st.none() | st.floats(0, 100),
)


def test_a_member_of_a_family_has_its_unit_and_knows_what_it_is_of() -> None:
    found = Specs([DISK]).find("disk.nvme0n1.writes")
    assert (found.name, found.unit, found.subject, found.of) == ("disk.nvme0n1.writes", "1", "nvme0n1", "disk.nvme0n1")
    assert DISK.member("disk.writes") is None


def test_a_family_of_percentiles_has_those_that_are_numbers() -> None:
    family = MetricSpec("latency.p{percentile}", "s", of="latency", statistic="percentile")
    found = Specs([family])
    assert found.find("latency.p99.9").percentile == 99.9
    assert found.find("latency.peak").unit == ""
    assert found.statistic("latency", "percentile", 99.9) == "latency.p99.9"


def test_what_is_not_declared_says_nothing_and_is_never_guessed_from_its_name() -> None:
    found = Specs([*latencies("write.latency", "write.ios")]).find("read.latency.p99")
    assert (found.unit, found.better, found.of, found.percentile) == ("", "neither", "", None)


def test_of_two_declarations_of_one_name_the_first_holds() -> None:
    assert Specs([MetricSpec("iops", "1/s"), MetricSpec("iops", "B")]).find("iops").unit == "1/s"


def test_a_histogram_is_no_number_of_a_trial() -> None:
    every = Specs([*latencies("latency", "ios", ()), *percentiles_of("latency", (99.0,))])
    assert [spec.name for spec in every.numbers()] == ["latency.mean", "latency.min", "latency.max", "latency.p99"]


KEYS = [
    ("log", "write.iops"),
    ("log", "read.iops"),
    ("db", "iops"),
    ("probe:stalls", "stall.longest"),
    ("probe:stalls@store", "stall.longest"),
    ("probe:backing@store", "backing.writes"),
]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("iops", [2, 0, 1]),  # "iops" where a source has it, else what ends so
        ("log:iops", [0, 1]),
        ("db:iops", [2]),
        ("stall.longest", [3]),  # at the load's own end
        ("probe:stalls@store:stall.longest", [4]),
        ("backing.writes", [5]),  # only another end has it
        ("ops", []),  # a part of a word is no name
        ("log:stall.longest", []),
    ],
)
def test_a_name_means_what_has_it_or_else_what_ends_in_it(wanted: str, meant: list[int]) -> None:
    assert named(wanted, KEYS) == [KEYS[at] for at in meant]


@given(st.dictionaries(st.sampled_from(["load", "probe:stalls"]), st.lists(specs, max_size=5)))
def test_declarations_that_were_saved_are_read_as_they_were(each: dict[str, list[MetricSpec]]) -> None:
    declared = Declarations({source: Specs(found) for source, found in each.items()})
    read = Declarations.from_json(declared.to_json(), "declared.json")
    assert {source: list(found) for source, found in read.items()} == {
        source: list(found) for source, found in declared.items()
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"load": [{"name": "iops"}]}',
        b'{"load": [{"name": "iops", "unit": "1/s", "better": "sideways"}]}',
        b'{"load": [{"name": "iops", "unit": "1/s", "colour": "red"}]}',
        b'{"load": 5}',
    ],
)
def test_damaged_declarations_are_refused_with_the_file(text: bytes) -> None:
    with pytest.raises(RecordsError, match=r"^cannot read run/declared\.json: [^\n]+$"):
        Declarations.from_json(text, "run/declared.json")


@given(st.binary(max_size=60))
def test_anything_else_is_refused_too(text: bytes) -> None:
    try:
        Declarations.from_json(text, "declared.json")
    except RecordsError as error:
        assert "declared.json" in str(error)


@pytest.mark.parametrize(
    ("source", "name", "margin"),
    [
        ("storage", "write.amplification", 0.01),
        ("probe:alignment", "write.aligned.16k", 0.01),
        ("probe:alignment", "write.unit.amplification.16k", 0.01),
        ("probe:host-load", "disk.target.bytes_written", 0.01),
        ("load", "write.bytes", 0.01),
        ("load", "write.iops", 0.10),
        ("load", "bandwidth", 0.10),
        ("load", "write.latency.mean", 0.10),
        ("load", "write.latency.p95", 0.10),
        ("load", "write.latency.p99", 0.25),
        ("load", "write.latency.p99.9", 0.25),
        ("load", "write.latency.max", 0.25),
        ("load", "stall.longest", 0.25),
        ("load", "write.iops.cv", 0.10),
        ("load", "unheard.of", 0.10),
    ],
)
def test_what_does_not_matter_goes_by_what_kind_of_number_it_is(source: str, name: str, margin: float) -> None:
    text = """
title = "All kinds"
stack = [{ layer = "directory" }]
probes = { alignment = {}, host-load = {} }
workload.load.fio = { rw = "randrw", size = "1M" }
"""
    study = parse_study(text.encode(), "study.toml", lambda name: "")
    assert metrics_of_study(study)[source].find(name).margin == margin
