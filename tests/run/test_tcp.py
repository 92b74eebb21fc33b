"""TCP in runs: probe tcp at both ends of a chain, beside a capture in a guest, and the relay that alters replies."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from laboratory import Laboratory, opened
from laboratory.samples import sample
from laboratory.wire import segments

pytestmark = pytest.mark.needs("guests")

READS, WRITES = 32, 16
BETWEEN_GUESTS = sample(__file__, "cases/tcp-between-guests.toml")


def metrics(lab: Laboratory, source: str) -> dict[str, float]:
    rows = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("node").is_null(), source=source)
    return dict(rows.select("metric", "value").iter_rows())


@pytest.fixture(scope="module")
def between_guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One run for the tests of both ends."""
    with opened(Laboratory(tmp_path_factory.mktemp("tcp"))) as lab:
        summary = lab.execute(BETWEEN_GUESTS, unconfined=True).summary
        (record,) = lab.records()
        assert (record.status, record.reason) == ("done", None)
        assert [warning for warning in summary.warnings if "tcp" in warning] == []
        yield lab


def test_counts_of_both_guests_are_those_of_a_capture_to_the_segment(between_guests: Laboratory) -> None:
    lab = between_guests
    client, store = metrics(lab, "probe:tcp"), metrics(lab, "probe:tcp@store")
    every = list(segments((lab.out / "trials/0001/client/read/wire.pcap").read_bytes()))
    asked = [each for each in every if each.destination_port == 10809]
    answered = [each for each in every if each.source_port == 10809]
    for sender, receiver, own in ((client, store, asked), (store, client, answered)):
        data, bare = [each for each in own if each.length], [each for each in own if each.is_bare]
        assert len(data) + len(bare) == len(own)
        assert (sender["segments.sent"], sender["acks.sent"]) == (len(data), len(bare))
        assert (receiver["segments.received"], receiver["acks.received"]) == (len(data), len(bare))
        assert sender["bytes.sent"] == sum(each.length for each in data)
    assert client["bytes.received"] >= READS * 128 * 1024


def test_acks_are_of_requests_of_the_disk_and_single_ones_as_many_as_were_sent(between_guests: Laboratory) -> None:
    client, store = metrics(between_guests, "probe:tcp"), metrics(between_guests, "probe:tcp@store")
    assert client["requests"] >= READS + WRITES
    assert client["acks.per-request"] == (client["acks.sent"] + client["acks.received"]) / client["requests"]
    assert client["acks.sent.mss"] == pytest.approx(client["bytes.received"] / client["acks.sent"] / client["mss"])
    assert store["acks.received.mss"] == pytest.approx(client["acks.sent.mss"], rel=0.05)
    assert 2 < client["acks.sent.mss"] < 90
    sent = client["segments.sent"] + store["segments.sent"]
    assert client["segments.per-request"] == sent / client["requests"]
    assert "segments.per-request" not in store
    assert client["rtt"] > 0
    rows = pl.read_parquet(between_guests.out / "tables" / "histograms.parquet")
    advances = rows.filter(source="probe:tcp", metric="acks.sent.advance")["count"].sum()
    assert advances == pytest.approx(client["acks.sent"], abs=2), "the first may only say where to begin"
    assert client["acks.sent.advance.p50"] > 1448
    assert client["acks.sent.gap.p50"] > 0


OVER_EACH = sample(__file__, "cases/tcp-over-each-transport.toml")


def test_sockets_of_the_kernel_are_seen_at_both_ends(lab: Laboratory) -> None:
    """Initiators of iSCSI and NVMe/TCP, NFS's client and server: no process has their sockets."""
    lab.succeed(OVER_EACH, trials=3)
    rows = pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("node").is_null())
    received = rows.filter(source="probe:tcp", metric="bytes.received")["value"].to_list()
    sent = rows.filter(source="probe:tcp@store", metric="bytes.sent")["value"].to_list()
    assert len(received) == len(sent) == 3
    assert min(received) > 2 * 1024 * 1024
    assert sent == pytest.approx(received, rel=0.05)


NAGLE = sample(__file__, "cases/nagle.toml")


def said(lab: Laboratory, trial: int) -> int:
    (path,) = (lab.out / "trials" / f"{trial:04}").rglob("reads/stdout")
    return int(path.read_text().removeprefix("delayed "))


def test_nagles_algorithm_on_the_server_waits_for_acks_that_the_client_delays(lab: Laboratory) -> None:
    """In 50 reads of 8 KiB over jumbo frames: data and header are less than a segment each."""
    lab.succeed(NAGLE, trials=2)
    delayed = {record.levels["nagle"]: said(lab, record.trial) for record in lab.records()}
    assert delayed["true"] >= 25, delayed
    assert delayed["false"] <= 3, delayed
