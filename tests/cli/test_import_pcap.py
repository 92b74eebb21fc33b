"""``storlab import pcap``: what a report of a capture says first, and which files are refused."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import polars as pl

from storlab import open_run
from study.program import call

GOLDEN = Path(__file__).parent.parent / "importing" / "golden"
SEED = str(GOLDEN / "pcap-tcpdump-3.txt")
ETHERNET = GOLDEN / "pcap-ethernet.pcap"


def test_the_head_of_a_report_says_what_the_largest_connections_did_and_what_is_missing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = call("import", "pcap", SEED, "--out", str(run))
    assert ran.status == 0, ran.message
    assert "packets 40; connections 1; seconds 0.000875" in ran.output
    report = " ".join(call("report", str(run)).output.split())
    name = "client:46340 > server:1025"
    assert f"{name}: received 13 data segments, 27 ACKs of these, each 2796 bytes on = 2.00 MSS of 1398" in report
    assert f"{name}: 20,970 bytes are missing from the capture" in report
    assert "acks.sent.mss: pcap" in report
    found = open_run(run).metrics.filter(pl.col("metric") == "missing.received")
    assert set(found["value"].to_list()) == {20_970.0}


def test_the_capture_is_kept_whole_and_a_run_without_tables_is_derived_from_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call("import", "pcap", str(ETHERNET), "--out", str(run)).status == 0
    (kept,) = run.rglob("capture")
    assert kept.read_bytes() == ETHERNET.read_bytes()
    first = call("report", str(run), "--format", "csv").output
    for table in run.rglob("*.parquet"):
        table.unlink()
    assert call("report", str(run), "--format", "csv").output == first


def test_several_captures_are_set_ups_beside_each_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    files = [str(ETHERNET), str(GOLDEN / "pcap-any.pcap")]
    ran = call("import", "pcap", *files, "--factor", "sack=on,off", "--out", str(run))
    assert "2 trials of 2 cells" in ran.output
    report = call("report", str(run))
    assert report.status == 0, report.message
    assert "there are no verdicts" in " ".join(report.output.split())


def test_a_packed_capture_and_the_same_capture_twice_are_refused(tmp_path: Path) -> None:
    packed = tmp_path / "x.pcap.gz"
    packed.write_bytes(gzip.compress(ETHERNET.read_bytes()))
    ran = call("import", "pcap", str(packed), "--out", str(tmp_path / "run"))
    assert (ran.status, "is packed by gzip" in ran.message) == (2, True)
    copy = shutil.copy(SEED, tmp_path / "copy.txt")
    ran = call("import", "pcap", SEED, str(copy), "--label", "a", "--label", "a", "--out", str(tmp_path / "run"))
    assert (ran.status, "a copy is not a repeat" in ran.message) == (2, True)
    assert not (tmp_path / "run").exists()
