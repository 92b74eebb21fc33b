"""Captures as measurements: named and in base units; and counts that are the kernel's own, to the segment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from formats.pcap.made import ethernet, pcap, sent
from formats.pcap.test_streams import reads
from laboratory import needs_root
from storlab.errors import MissingTool, ParseError
from storlab.importing.importer import Part
from storlab.importing.pcap import PcapImporter
from storlab.metrics import HISTOGRAMS, Specs

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"


def imported(path: Path) -> Part:
    with path.open("rb") as file:
        (part,) = PcapImporter().read_stream(file, path.name, {})
    return part


def test_metrics_are_in_base_units_and_of_jobs_where_there_are_several_connections() -> None:
    measured = imported(GOLDEN / "pcap-ethernet.pcap").measured
    found = measured.totals()
    assert (found["bytes.sent"], found["bytes.received"], found["segments.received"]) == (768, 120_000, 6)
    assert (found["acks.sent"], found["mss"], found["connections"]) == (4, 65_483, 1)
    assert found["rtt"] == pytest.approx(100e-6 / 6)
    assert 1e-6 < found["acks.sent.gap.p50"] < 0.1
    assert measured.metrics["job"].null_count() == measured.metrics.height
    specs = Specs(measured.declared)
    assert {specs.find(name).quantity for name in measured.histograms["metric"].unique()} <= set(HISTOGRAMS)


def test_a_capture_without_tcp_is_refused() -> None:
    with pytest.raises(ParseError, match="x: has no packet of TCP"):
        PcapImporter().read(b"\xd4\xc3\xb2\xa1" + bytes(20), "x", {})


def test_without_the_agent_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORLAB_AGENT", "/nowhere/agent")
    with pytest.raises(MissingTool, match="/nowhere/agent, which can't be executed; unset it or build that agent"):
        imported(GOLDEN / "pcap-ethernet.pcap")


def test_delays_and_full_windows_are_said_in_sentences() -> None:
    window = sent(20.0, 50 + 1280, acked=1000 + 20 * 1448, window=0)
    frames = [(packet.time, ethernet(packet)) for packet in [*reads(wait=0.04), window]]
    (part,) = PcapImporter().read(pcap(frames), "x", {})
    said = " ".join(part.measured.warnings)
    assert "10 delayed ACKs, 35 to 300 ms after the newest data: 0.40 s of waiting in all" in said
    assert "a receiver said 1 times that it has no room (window 0)" in said


@needs_root
@pytest.mark.skipif(not all(map(shutil.which, ("tcpdump", "ethtool"))), reason="needs tcpdump and ethtool")
def test_counts_are_those_of_the_kernel_to_the_segment(tmp_path: Path) -> None:
    capture = tmp_path / "x.pcap"
    argv = ["unshare", "-n", "bash", str(HERE / "pcap_transfer.sh"), str(capture)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    data_out, data_in, all_out, _ = map(int, ended.stdout.split())
    found = imported(capture).measured.totals()
    assert (found["missing.sent"], found["missing.received"]) == (0, 0)
    assert (found["segments.sent"], found["segments.received"]) == (data_out, data_in)
    assert found["acks.sent"] == all_out - data_out - 1 + 1  # without its SYN; and it acknowledged the last FIN
    assert found["mss"] == 1448
    assert found["bytes.received"] == 20 * 131_072
