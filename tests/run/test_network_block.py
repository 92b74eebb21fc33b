"""The study ``network-block``: each transport is set up, measured and torn down, and its counts make sense."""

from __future__ import annotations

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.study.study import load_study, shipped_studies

STUDY = shipped_studies()["network-block"]
# One server for all, and Bonnie++'s tests of data alone: most of the time is that of guests that start.
SMALL = (
    *("size=1M", "seeks=4", "files=0", "disk=32M", "nodes.server.keep=run", "nodes.server.memory=256M"),
    *("nodes.client.memory=256M", 'compare.1.metrics=["seek.rate"]'),
)
TCP = {"nbd", "dst", "iscsi", "nvme", "nfs"}


def test_its_profile_varies_all_that_was_asked_about() -> None:
    assert len(load_study(STUDY).cells) == 7
    assert len(load_study(STUDY, ["profile=full"]).cells) == 7 * 2 * 4 * 2 * 2 * 2


@pytest.mark.timeout(1500)
@needs_guests
def test_every_transport_runs_to_the_report(lab: Laboratory) -> None:
    settings = [word for each in SMALL for word in ("--set", each)]
    ran = lab.storlab("run", STUDY, "--out", lab.out, "--rounds", "1", "--quiet", *settings, timeout=1400)
    assert ran.status == 0, ran
    assert {record.levels["transport"]: (record.status, record.reason) for record in lab.records()} == dict.fromkeys(
        TCP | {"local", "aoe"}, ("done", None)
    )
    acks = acks_per_request(lab)
    assert acks.keys() == TCP - {"nfs"}, "NFS has no disk whose requests could be counted"
    # 128 KiB in segments of 1448 bytes are 90.5, two or more of which are acknowledged at once.
    assert 0 < min(acks.values()) <= acks["iscsi"] <= 60
    assert (lab.out / "report.html").stat().st_size > 10_000
    assert lab.leftovers() == []


def acks_per_request(lab: Laboratory) -> dict[str, float]:
    found = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(
        pl.col("source") == "probe:tcp", pl.col("metric") == "acks.per-request", pl.col("node").is_null()
    )
    levels = {record.trial: record.levels["transport"] for record in lab.records()}
    return {levels[trial]: value for trial, value in found.select("trial", "value").iter_rows()}
