"""Which latency trials of fio have: the one that an application waits for."""

from __future__ import annotations

import json

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.studies import directory
from storlab.records.derive import derive

BUFFERED = (
    'fio = { rw = "randread", bs = "4k", size = "4M", ioengine = "libaio", runtime = "500ms", time_based = true OWN }'
)


def measured(lab: Laboratory, own: str = "") -> tuple[dict[str, float], dict[str, float], tuple[str, ...]]:
    """Metrics of the only trial, means as fio reports them, and warnings: of a load that waits in submission."""
    result = lab.run(directory(BUFFERED.replace("OWN", own)))
    assert result.status == 0, str(result)
    tables = derive(lab.run_folder)
    found = tables.frame("metrics").filter(
        pl.col("source") == "load", pl.col("node").is_null(), pl.col("job").is_null()
    )
    (raw,) = lab.run_folder.path.rglob("fio.json")
    read = json.loads(raw.read_text())["jobs"][0]["read"]
    means = {kind: read[f"{kind}_ns"]["mean"] / 1e9 for kind in ("slat", "clat", "lat")}
    return dict(found.select("metric", "value").iter_rows()), means, tables.warnings()


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
