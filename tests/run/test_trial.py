"""What a trial measures, when its loads ran, and why it failed."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import cast
from unittest import mock

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.studies import ON_LOOP, directory
from storlab.base.errors import CommandFailed, NodeLost
from storlab.records.derive import derive
from storlab.report.language.say import said as told
from storlab.run.build import Built
from storlab.run.trial.measure import LoadSpan
from storlab.run.trial.reasons import out_of_memory


@pytest.mark.parametrize(
    ("span", "at", "into"),
    [
        (LoadSpan(), 5.0, None),
        (LoadSpan(began=6.0), 5.0, None),
        (LoadSpan(began=2.0), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=6.0), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=5.25), 5.5, 3.5),
        (LoadSpan(began=2.0, ended=4.0), 5.5, None),
    ],
)
def test_a_moment_is_some_seconds_into_the_load_while_one_runs(span: LoadSpan, at: float, into: float | None) -> None:
    assert span.into(at) == into


KILLED = b"1000.5 2000.0\n[  990.250000] Out of memory: Killed process 4711 (postgres), UID 0\n"


def built(run: mock.AsyncMock, *, pid: int = 1) -> Built:
    node = SimpleNamespace(name="vm", lost=None, run=run)
    program = SimpleNamespace(name="/usr/lib/postgresql/postgres", pid=pid)
    return cast(Built, SimpleNamespace(parts={"p": SimpleNamespace(programs=[program], node=node)}))


def said(stdout: bytes) -> mock.AsyncMock:
    return mock.AsyncMock(return_value=SimpleNamespace(stdout=stdout))


def test_the_server_that_the_kernel_has_just_killed_is_named() -> None:
    expected = "the kernel of vm was out of memory, and killed postgres (process 4711)"
    assert asyncio.run(out_of_memory(built(said(KILLED)))) == expected
    assert asyncio.run(out_of_memory(built(said(KILLED.replace(b"1000.5", b"2000.5"))))) == "", "long ago"


NONSENSE = [b"", b"\n\n", b"never\n" + KILLED.partition(b"\n")[2], b"\xff\x00"]
NOT_ASKED = [CommandFailed("sh: Cannot allocate memory"), NodeLost("the guest is gone")]


@pytest.mark.parametrize("run", [*map(said, NONSENSE), *(mock.AsyncMock(side_effect=error) for error in NOT_ASKED)])
def test_nonsense_and_a_node_that_can_not_be_asked_leave_the_trials_own_reason(run: mock.AsyncMock) -> None:
    assert asyncio.run(out_of_memory(built(run))) == ""


BUFFERED = (
    'fio = { rw = "randread", bs = "4k", size = "4M", ioengine = "libaio", runtime = "500ms", time_based = 1 OWN }'
)


def measured(lab: Laboratory, own: str = "") -> tuple[dict[str, float], dict[str, float], tuple[str, ...]]:
    """Metrics of the only trial, means as fio reports them, and warnings: of a load that waits in submission."""
    lab.run(directory(BUFFERED.replace("OWN", own))).with_status(0)
    tables = derive(lab.run_folder)
    found = tables.frame("metrics").filter(pl.col("node").is_null(), pl.col("job").is_null(), source="load")
    (raw,) = lab.run_folder.path.rglob("fio.json")
    read = json.loads(raw.read_text())["jobs"][0]["read"]
    means = {kind: read[f"{kind}_ns"]["mean"] / 1e9 for kind in ("slat", "clat", "lat")}
    return dict(found.select("metric", "value").iter_rows()), means, told(tables.warnings())


def test_latency_is_the_total_with_what_submission_waits(lab: Laboratory) -> None:
    found, means, warnings = measured(lab)
    assert means["slat"] > 10 * means["clat"], "else this shows nothing"
    assert found["read.latency.mean"] == pytest.approx(means["lat"])
    assert found["read.latency.min"] <= found["read.latency.p50"] <= found["read.latency.p99"]
    assert found["read.latency.p50"] > 10 * means["clat"]
    series = derive(lab.run_folder).frame("series").filter(metric="read.latency")
    assert series["value"].median() > 10 * means["clat"]  # type: ignore[operator]
    assert not [warning for warning in warnings if "submission" in warning]


def test_who_asks_for_completion_latency_gets_it_and_is_told_what_it_lacks(lab: Laboratory) -> None:
    found, means, warnings = measured(lab, ", clat_percentiles = 1")
    assert found["read.latency.mean"] == pytest.approx(means["clat"])
    assert [warning for warning in warnings if "latencies are without submission (clat)" in warning]


WRITES = 'fio = { rw = "write", bs = "64k", size = "32M" OWN }'  # once: fio begins a file again by dropping its pages


@pytest.mark.needs("root")
@pytest.mark.parametrize(("own", "told"), [("", True), (", direct = 1", False)])
def test_a_report_says_so_of_writes_into_the_page_cache_alone(lab: Laboratory, own: str, told: bool) -> None:
    """On a disk of its own: what other tests write to this machine's would count as well."""
    study = directory(WRITES.replace("OWN", own), stack=f"[{ON_LOOP}]")
    result = lab.run(study.replace("[probes]", "[probes]\nhost-load = {}")).with_status(0)
    known = derive(lab.run_folder).frame("metrics").filter(pl.col("node").is_null(), metric="write.amplification")
    assert known.height == 1, "else this shows nothing"
    assert ("had reached the disk" in " ".join(result.stdout.split())) == told
