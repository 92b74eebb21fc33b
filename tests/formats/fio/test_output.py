"""Reading fio's JSON, on outputs that fio wrote; damaged, it either parses or is refused by name."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import polars as pl
import pytest

from storlab.base.errors import CommandFailed, DiskFull, ParseError
from storlab.measurements import METRIC_COLUMNS, SERIES_COLUMNS
from storlab.metrics import percentile_name
from storlab.tools.fio.output import frames, parse_fio, read_report, unique_names

from .samples import GOLDEN, counts, golden, values

NAMES = sorted(path.name for path in GOLDEN.glob("fio-*.json"))
READABLE = [name for name in NAMES if name != "fio-full.json"]


GROUP_TEXT = golden("fio-group.json")
GROUP = parse_fio(GROUP_TEXT, "x")


def document(name: str) -> dict[str, Any]:
    text = golden(name)
    loaded: dict[str, Any] = json.loads(text[text.index(b"{") :])
    return loaded


def percentiles_of(block: dict[str, Any]) -> dict[str, float]:
    return {percentile_name(float(key)): value / 1e9 for key, value in block.get("percentile", {}).items()}


@pytest.mark.parametrize("name", READABLE)
def test_every_golden_file_gives_frames_of_the_fixed_columns_and_the_percentiles_that_fio_prints(name: str) -> None:
    measured = parse_fio(golden(name), name)
    assert (dict(measured.metrics.schema), dict(measured.series.schema)) == (METRIC_COLUMNS, SERIES_COLUMNS)
    assert measured.metrics.filter(pl.col("value").is_nan() | pl.col("value").is_null()).is_empty()
    assert measured.facts["version"] == "3.33"

    root = document(name)
    jobs = [job for job in root.get("jobs") or root["client_stats"] if job["jobname"] != "All clients"]
    names = [job.name for job in read_report(golden(name), name).jobs]
    for job, label in zip(jobs, names, strict=True):
        mine = values(measured, label)
        for direction, kind in product(("read", "write", "trim", "sync"), ("clat_ns", "lat_ns")):
            block = job.get(direction, {}).get(kind, {})
            theirs = {f"{direction}.latency.{key}": value for key, value in percentiles_of(block).items()}
            if "bins" in block:
                shared = theirs.keys() & mine.keys()
                assert {key: mine[key] for key in shared} == pytest.approx({key: theirs[key] for key in shared})


@pytest.mark.parametrize("name", READABLE)
def test_fio_before_3_18_which_does_not_count_latencies_is_read_alike(name: str) -> None:
    text = golden(name)
    uncounted = re.sub(rb',\s*"N" : \d+', b"", text)
    assert uncounted != text
    assert values(parse_fio(uncounted, name)) == pytest.approx(values(parse_fio(text, name)), rel=1e-12)


def test_many_reports_give_what_each_gives_by_itself() -> None:
    together = frames([read_report(golden(name), name) for name in READABLE])
    for number, name in enumerate(READABLE):
        alone = parse_fio(golden(name), name)
        for frame, expected in zip(together, (alone.metrics, alone.series, alone.histograms), strict=True):
            assert frame.filter(pl.col("report") == number).drop("report").equals(expected)
    assert [len(frame) for frame in frames([])] == [0, 0, 0]


def test_merged_jobs_are_what_fio_itself_merges() -> None:
    """fio's client adds all jobs of a run up, though without bins: the same operations, merged by both."""
    root = document("fio-client.json")
    theirs = root["client_stats"][-1]
    assert theirs["jobname"] == "All clients"
    measured = parse_fio(golden("fio-client.json"), "x")
    ours = values(measured)
    for direction in ("read", "write"):
        block = theirs[direction]["clat_ns"]
        assert sum(counts(measured, f"{direction}.latency").values()) == block["N"]
        assert ours[f"{direction}.latency.mean"] == pytest.approx(block["mean"] / 1e9, rel=1e-6)
        assert ours[f"{direction}.latency.min"] == block["min"] / 1e9
        assert ours[f"{direction}.latency.max"] == block["max"] / 1e9
        assert ours[f"{direction}.bytes"] == theirs[direction]["io_bytes"]
        assert ours[f"{direction}.ios"] == theirs[direction]["total_ios"]
        assert ours[f"{direction}.bandwidth"] == pytest.approx(theirs[direction]["bw_bytes"], rel=1e-6)
        assert ours[f"{direction}.iops"] == pytest.approx(theirs[direction]["iops"], rel=1e-6)


def test_jobs_of_one_name_are_numbered_a_group_is_one_and_totals_are_over_directions() -> None:
    measured = parse_fio(golden("fio-four-jobs.json"), "x")
    assert measured.metrics["job"].unique(maintain_order=True).to_list() == [None, *(f"rand.{i}" for i in range(1, 5))]
    assert unique_names(["a", "a.1", "a", "b"]) == ["a.2", "a.1", "a.3", "b"]
    assert [job.name for job in read_report(GROUP_TEXT, "x").jobs] == ["rand"]
    ours = values(GROUP)
    for name in ("bandwidth", "iops", "bytes", "ios"):
        assert ours[name] == ours[f"read.{name}"] + ours[f"write.{name}"]
    assert ours["latency.max"] == max(ours["read.latency.max"], ours["write.latency.max"])
    assert min(ours["read.latency.p50"], ours["write.latency.p50"]) <= ours["latency.p50"]
    assert ours["latency.p50"] <= max(ours["read.latency.p50"], ours["write.latency.p50"])
    assert not any(name.startswith(("trim.", "sync.")) for name in values(GROUP))


def test_syncs_are_apart_from_the_totals_and_nan_and_paths_in_other_encodings_are_read() -> None:
    measured = parse_fio(golden("fio-sync.json"), "x")
    ours = values(measured)
    assert ours["sync.ios"] == 15 and ours["ios"] == ours["write.ios"] == 64
    assert ours["sync.latency.max"] >= ours["sync.latency.p50"] > 0
    assert any("queue depth will be capped at 1" in warning for warning in measured.warnings)
    text = golden("fio-sync.json").replace(b'"usr_cpu" : ', b'"usr_cpu" : -nan, "x" : ', 1)
    text = text.replace(b'"name" : "log"', b'"name" : "l\xe4g"', 1)
    assert values(parse_fio(text, "x"))["cpu.user"] == 0


def test_total_latency_mixed_reporting_and_the_last_of_several_reports_are_read() -> None:
    measured = parse_fio(golden("fio-total-latency.json"), "x")
    assert measured.facts["latency"] == "total" and "read.latency.p99" in values(measured) and measured.warnings == ()
    ours = values(parse_fio(golden("fio-mixed.json"), "x"))
    assert ours["ios"] == ours["mixed.ios"] == 3000 and "read.ios" not in ours
    measured = parse_fio(golden("fio-stonewall.json") + GROUP_TEXT, "x")
    assert values(measured, "rand")["ios"] == 12000
    assert any("only the last" in warning for warning in measured.warnings)
    # To look for the end of each of them in all that follows would take minutes.
    whole = (GOLDEN / "fio-plain.json").read_bytes()
    report = read_report(b"{\n" * 500_000 + whole, "x")
    assert [job.name for job in report.jobs] == [job.name for job in read_report(whole, "x").jobs]


@pytest.mark.parametrize(("submission", "said"), [(0.009, None), (0.5, "up to 50% of the total")])
def test_completion_latency_that_leaves_much_out_is_a_warning(submission: float, said: str | None) -> None:
    document_ = document("fio-plain.json")
    completion = document_["jobs"][0]["read"]["clat_ns"]["mean"]
    document_["jobs"][0]["read"]["slat_ns"] |= {"mean": completion * submission / (1 - submission)}
    warnings = parse_fio(json.dumps(document_).encode(), "x").warnings
    assert [warning for warning in warnings if "submission" in warning] == (
        [] if said is None else [next(warning for warning in warnings if said in warning)]
    )


@pytest.mark.parametrize("option", [b'"lat_percentiles" : "1"', b'"clat_percentiles" : "0"'])
def test_percentiles_of_the_total_are_named_so_where_old_versions_print_them_with_completion(option: bytes) -> None:
    plain = golden("fio-plain.json")
    said = plain.replace(b'"job options" : {', b'"job options" : {' + option + b",")
    block = document("fio-plain.json")["jobs"][0]["read"]
    for version, total in ((b"fio-3.1", True), (b"fio-3.12", True), (b"fio-3.13", False)):
        measured = parse_fio(said.replace(b"fio-3.33", version), "x")
        ours = values(measured, "rand.1")
        assert ours["read.latency.p99"] == block["clat_ns"]["percentile"]["99.000000"] / 1e9
        assert ours["read.latency.mean"] == pytest.approx(block["lat_ns" if total else "clat_ns"]["mean"] / 1e9)
        assert measured.facts["latency"] == ("total" if total else "completion")
    assert parse_fio(plain.replace(b"fio-3.33", b"fio-3.12"), "x").facts["latency"] == "completion"


def test_jobs_after_a_stonewall_have_their_run_times_added() -> None:
    measured = parse_fio(golden("fio-stonewall.json"), "x")
    assert any("one after another" in warning for warning in measured.warnings)
    one, two = values(measured, "one"), values(measured, "two")
    assert values(measured)["read.bandwidth"] == one["bandwidth"]
    assert values(measured)["write.bandwidth"] == two["bandwidth"]
    both = golden("fio-stonewall.json").replace(b'"rw" : "write"', b'"rw" : "read"')
    both = both.replace(b'"groupid" : 1', b'"groupid" : 0')
    assert not parse_fio(both, "x").warnings


def test_the_depth_that_fio_sought_for_a_target_of_latency_is_a_metric_of_each_job_and_of_all() -> None:
    found = document("fio-stonewall.json")
    for depth, job in zip((8, 3), found["jobs"], strict=True):
        job |= {"latency_depth": depth, "latency_target": 500_000, "latency_percentile": 90.0, "latency_window": 50_000}
    measured = parse_fio(json.dumps(found).encode(), "x")
    depths = [values(measured, *of)["latency_target.depth"] for of in (["one"], ["two"], [])]
    assert depths == [8, 3, 11]
    assert "latency_target.depth" not in values(parse_fio(golden("fio-stonewall.json"), "x"))


def test_a_steady_state_gives_its_window_and_deviation_and_warns_where_it_was_not_attained() -> None:
    measured = parse_fio(golden("fio-steady.json"), "x")
    block = document("fio-steady.json")["jobs"][0]["steadystate"]
    ours = values(measured, "steady")
    assert ours["steady.attained"] == 1
    assert ours["steady.deviation"] == pytest.approx(block["max_deviation"] / block["data"]["iops_mean"], rel=0.01)
    series = measured.series.filter(pl.col("metric") == "steady.bandwidth")
    assert (series["value"].to_list(), series["unit"].unique().to_list()) == (block["data"]["bw"], ["B/s"])
    assert series["value"][0] == pytest.approx(block["data"]["iops"][0] * 4096, rel=0.01)
    assert series["t"].diff().drop_nulls().to_list() == pytest.approx([1.0, 1.0])
    assert measured.facts["steady.criterion"] == {"steady": "iops:50.000000%"}
    measured = parse_fio(golden("fio-unsteady.json"), "x")
    ours = values(measured, "slope")
    assert ours["steady.attained"] == 0 and "steady.slope" not in ours
    assert measured.series.filter(pl.col("metric") == "steady.iops").height == 2
    assert any("did not reach its steady state" in warning for warning in measured.warnings)


def test_a_full_disk_an_error_of_a_job_and_a_refused_option_are_told_in_fios_words() -> None:
    with pytest.raises(DiskFull, match=r"full/fill\.0\.0") as caught:
        parse_fio(golden("fio-full.json"), "x", golden("fio-full.stderr"))
    assert "func=io_u error" in caught.value.detail
    with pytest.raises(DiskFull, match="no space left on device: fill"):
        parse_fio(golden("fio-full.json"), "x")
    text = GROUP_TEXT.replace(b'"error" : 0', b'"error" : 5', 1)
    with pytest.raises(CommandFailed, match="io_u error on file /x: Input/output error"):
        parse_fio(text, "x", b"fio: pid=1, err=5/file:io_u.c:1\nfio: io_u error on file /x: Input/output error\n")
    with pytest.raises(CommandFailed, match="EIO"):
        parse_fio(text, "x")
    with pytest.raises(CommandFailed, match="unrecognized option '--bogus=3'"):
        parse_fio(b"", "x", b"fio: unrecognized option '--bogus=3'\nfio: unrecognized option '--bogus=3'\n")


def test_operations_that_fio_passed_over_and_latencies_beyond_the_last_bin_are_told() -> None:
    text = GROUP_TEXT.replace(b'"latency_depth"', b'"total_err" : 7, "first_error" : 5, "latency_depth"')
    measured = parse_fio(text, "x")
    assert values(measured)["errors"] == 7 and any("7 failed operations" in warning for warning in measured.warnings)
    first = text.replace(b'"error" : 0', b'"error" : 5', 1)
    assert values(parse_fio(first, "x"))["errors"] == 7, "fio says it of a job that went on, too"
    with pytest.raises(CommandFailed, match="EROFS"):
        parse_fio(text.replace(b'"error" : 0', b'"error" : 30', 1), "x")
    text = GROUP_TEXT.replace(b'"bins" : {', b'"bins" : {"17112760320" : 2,', 1)
    assert any("17.0 s or longer" in warning for warning in parse_fio(text, "x").warnings)


def test_messages_around_the_document_become_warnings_and_one_without_an_end_of_line_hides_none() -> None:
    text = b"note: before\nfio: {odd}\n" + GROUP_TEXT + b"fio: after\n"
    measured = parse_fio(text, "x")
    assert measured.warnings == ("fio: note: before", "fio: {odd}", "fio: after")
    text = b"fio: terminating on signal 2\nfio: select() call failed: Interrupted system call" + GROUP_TEXT
    measured = parse_fio(text, "x")
    assert measured.warnings == ("fio: terminating on signal 2", "fio: select() call failed: Interrupted system call")


def test_documents_that_are_truncated_of_fio_2_or_not_there_are_refused_with_the_reason() -> None:
    text = b"note: x\n" + GROUP_TEXT
    cut = text[: len(text) // 2]
    with pytest.raises(ParseError, match="damaged or truncated") as caught:
        parse_fio(cut, "run/fio.json")
    assert (caught.value.source, caught.value.line) == ("run/fio.json", cut.count(b"\n") + 1)
    for version in ("2.1.4", "2.17-12-g3c1a"):  # whose bw would be of other bytes
        with pytest.raises(
            ParseError, match=r"x:\d+: job .*: bw is .*: their units are not sure; .*storlab import csv"
        ):
            parse_fio(GROUP_TEXT.replace(b"fio-3.33", f"fio-{version}".encode()).replace(b"io_kb", b"kb"), "x")
    with pytest.raises(ParseError, match="--output-format=json"):
        parse_fio(b"rand: (g=0): rw=randread\n", "x")


def test_a_wrong_value_is_named_by_its_path() -> None:
    for old, new, says in (
        (b'"io_bytes" : ', b'"io_bytes" : -', r"jobs\[0\]\.read\.io_bytes isn't .*: Expected `int` >= 0"),
        (b'"bins" : {', b'"bins" : {"128" : 1,', "'128'"),  # a bin that fio has not
        (b'"bins" : {', b'"bins" : {"127" : 9007199254740991,', r"read\.clat_ns\.bins should be counts"),
    ):
        with pytest.raises(ParseError, match=says):
            parse_fio(GROUP_TEXT.replace(old, new, 1), "x")
