"""The tour, first part: a study in virtual machines, from its file to the answer.

A disk and a shared folder of this machine are given to a guest and compared; a probe counts in the guest, with eBPF,
what the disk was asked for. Then a server exports a disk over the guests' network, and both ends are watched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars as pl
import pytest

from laboratory import Laboratory, opened
from laboratory.samples import sample

pytestmark = pytest.mark.needs("guests")

MIB = 1024 * 1024
DISK_OR_FOLDER = sample(__file__, "cases/disk-or-folder.toml")
OVER_THE_NETWORK = sample(__file__, "cases/over-the-network.toml")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """After ``storlab run`` of the first study."""
    with opened(Laboratory(tmp_path_factory.mktemp("study"))) as lab:
        ran = lab.run(DISK_OR_FOLDER, timeout=400)
        assert ran.status == 0, ran
        yield lab


def test_every_level_was_measured_once_in_each_round(lab: Laboratory) -> None:
    records = lab.records()
    assert [(record.status, record.reason) for record in records] == [("done", None)] * 6
    rounds = [{record.levels["place"] for record in records[first : first + 2]} for first in (0, 2, 4)]
    assert rounds == [{"disk", "folder"}] * 3, "each round has both, in an order that is drawn"


def test_guests_are_copies_of_one_that_was_saved_after_its_boot(lab: Laboratory) -> None:
    facts = [record.guests["vm"] for record in lab.records()]
    assert {each["boot"] for each in facts} == {"restored"}
    assert all(each["boot_seconds"] > 0 and each["image"].startswith("debian-") for each in facts)


def test_what_each_layer_became_is_recorded(lab: Laboratory) -> None:
    layers = {
        record.levels["place"]: [fact["layer"] for each in record.facts.values() for fact in each]
        for record in lab.records()
    }
    assert {"file", "virtio-blk", "mkfs", "mount"} <= {*layers["disk"]}
    assert {"directory", "9p"} <= {*layers["folder"]}


def test_requests_are_counted_in_the_guest_by_length(lab: Laboratory) -> None:
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet")
    written = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    disks = {record.trial for record in lab.records() if record.levels["place"] == "disk"}
    assert {*written["trial"]} == disks, "a folder has no disk in the guest"
    assert (written.group_by("trial").agg(pl.col("count").sum())["count"] >= 2 * MIB // 16384).all()


def test_no_verdict_is_given_that_three_rounds_can_not_carry(lab: Laboratory) -> None:
    document = json.loads(lab.storlab("report", lab.out, "--format", "json").stdout)
    (found,) = (each for each in document["comparisons"] if each["metric"] == "write.iops")
    assert (found["a"], found["b"], found["rounds"], found["verdict"]) == ("disk", "folder", 3, "undecided")
    assert found["ratio"] > 0
    assert (found["undecided"]["kind"], found["undecided"]["fewest"]) == ("too few rounds", 5)
    text = lab.storlab("report", lab.out).stdout
    assert "disk against folder: undecided. Too few rounds to decide anything" in " ".join(text.split())


def test_the_report_is_one_page_that_fetches_nothing(lab: Laboratory) -> None:
    page = (lab.out / "report.html").read_text()
    assert "<svg" in page
    assert "src=" not in page and "<link" not in page
    document = json.loads(lab.storlab("report", lab.out, "--format", "json").stdout)
    assert document["facts"]


def test_a_run_holds_its_study_and_all_that_was_drawn(lab: Laboratory) -> None:
    manifest = lab.run_folder.manifest
    assert manifest.study_text == (lab.folder / "study.toml").read_text()
    assert (manifest.seed, manifest.rounds) == (1, (3, 3))
    assert manifest.plan is not None and len(manifest.plan.cells) == 2


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """After a run in which one guest reads from another's disk."""
    with opened(Laboratory(tmp_path_factory.mktemp("network"))) as lab:
        lab.execute(OVER_THE_NETWORK)
        yield lab


def test_a_disk_of_one_guest_is_read_in_another_over_their_network(crossing: Laboratory) -> None:
    (record,) = crossing.records()
    assert (record.status, record.reason) == ("done", None)
    (network,) = (fact for fact in record.facts["client"] if fact["layer"] == "network")
    assert network["mtu"] == 1500
    assert network["peers"]["server"]["mss"] == [1448]


def test_both_ends_of_the_connection_were_watched(crossing: Laboratory) -> None:
    rows = pl.read_parquet(crossing.out / "tables" / "metrics.parquet").filter(pl.col("node").is_null())
    found = dict(rows.filter(pl.col("source").str.starts_with("probe:tcp")).select("metric", "value").iter_rows())
    assert found["acks.per-request"] > 0, found
