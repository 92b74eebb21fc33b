"""Probes ``folios`` and ``fragmentation`` on this machine: what they count, and that the kernel says the same."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import orjson
import pytest

from storlab.base.errors import ParseError
from storlab.base.programs import agent_path
from storlab.probes.base import ProbeRecord, Window
from storlab.probes.memory import FoliosProbe, FragmentationProbe, Zone, index, parse_buddyinfo, unusable
from storlab.probes.subject import Subject

from . import HERE, watched, write_samples

MEBIBYTE = 1 << 20
BOTH = 'mount -t debugfs none /mnt && cat /proc/buddyinfo && echo === && cat "/mnt/extfrag/$0" && cat /proc/buddyinfo'


@pytest.mark.needs("root")
def test_every_page_that_a_file_is_cached_in_is_counted(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:  # tmpfs, as /tmp may be, does not report its folios
        write = ["dd", "if=/dev/zero", f"of={file.name}", "bs=1M", "count=16", "status=none"]
        found = watched(FoliosProbe(), tmp_path, *write).totals()
    sizes = {name.removeprefix("folios."): value for name, value in found.items() if name.startswith("folios.")}
    assert found["cached.bytes"] >= 16 * MEBIBYTE and sum(sizes.values()) == found["folios"]
    assert found["folio.size"] == pytest.approx(found["cached.bytes"] / found["folios"])
    assert 0 <= found["large.share"] <= 1


@pytest.mark.needs("root")
def test_a_kernel_that_does_not_tell_the_order_is_named() -> None:
    hide = "mount -t tmpfs none /sys/kernel && mkdir -p /sys/kernel/tracing/events/block"
    script = f'{hide} && exec "$0" folios --check'
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", script, agent_path()], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "folios can't be counted: Linux" in ran.stderr and "does not say how large a folio is" in ran.stderr


@pytest.mark.parametrize(
    "lines",
    [
        b'{"event":"counts","monotonic_ns":1,"realtime_ns":1,"page_size":4096,"folios":[],"missed":0}\n',
        b'{"event":"started","monotonic_ns":1,"realtime_ns":1}\n{"event":"counts","folios":[["vda",99,1]]}\n',
        b"{}\n",
    ],
)
def test_what_no_counter_printed_is_refused(lines: bytes, tmp_path: Path) -> None:
    (tmp_path / FoliosProbe.output).write_bytes(lines)
    with pytest.raises(ParseError):
        FoliosProbe().parse(ProbeRecord(tmp_path, Window(0, 1), HERE))


def folios(raw: Path) -> ProbeRecord:
    """Counted beside a root file system on another disk, with a share."""
    started = {"event": "started", "monotonic_ns": 1, "realtime_ns": 1}
    rows = [["vda", 0, 5000], ["vdb", 0, 90], ["0:45", 0, 6], ["vdb", 9, 1]]
    counts = started | {"event": "counts", "page_size": 4096, "folios": rows, "lost": 0, "missed": 2}
    (raw / FoliosProbe.output).write_bytes(orjson.dumps(started) + b"\n" + orjson.dumps(counts) + b"\n")
    return ProbeRecord(raw, Window(0, 1), Subject(group="vm", disks=("vdb",)))


def fragmentation(raw: Path) -> ProbeRecord:
    texts = "Node 0, zone   Normal   1000      0      2 \n", "compact_stall 3\nallocstall_normal 4\n"
    write_samples(raw, ["/proc/buddyinfo", "/proc/vmstat"], (0.1, texts), (0.9, texts))
    return ProbeRecord(raw, Window(0, 1), Subject(group="vm"))


def test_sizes_follow_from_orders_and_the_size_of_a_page_on_the_disks_under_test(tmp_path: Path) -> None:
    seen = FoliosProbe().parse(folios(tmp_path))
    total = 96 * 4096 + 2 * MEBIBYTE
    assert seen.totals() == pytest.approx({
        "folios": 97, "cached.bytes": total, "folio.size": total / 97, "large.share": 2 * MEBIBYTE / total,
        "folios.4k": 96, "folios.2M": 1,
    })  # fmt: skip
    assert seen.warnings == ("folios: 2 times the kernel could not run the counter: as many folios are not counted",)


@pytest.mark.needs("root")
@pytest.mark.parametrize("file", ["unusable_index", "extfrag_index"])
def test_the_kernel_computes_the_same_indices(file: str) -> None:
    """Its own file and buddyinfo are read one after the other: on a busy machine until nothing changed in between."""
    for _ in range(50):
        ran = subprocess.run(["unshare", "--mount", "sh", "-c", BOTH, file], capture_output=True, text=True, check=True)
        before, _, rest = ran.stdout.partition("===\n")
        lines = rest.splitlines()
        own, after = lines[: len(lines) // 2], "\n".join(lines[len(lines) // 2 :]) + "\n"
        if before == after:
            break
    else:
        pytest.fail("free memory never stood still")
    zones = parse_buddyinfo(before)
    assert len(zones) == len(own) > 0
    for zone, line in zip(zones, own, strict=True):
        for order, said in enumerate(map(float, line.split()[4:])):
            if file == "unusable_index":
                assert unusable([zone], order) == pytest.approx(said, abs=0.001)
            else:
                assert index([zone], order) == pytest.approx(max(said, 0.0), abs=0.002)


def test_memory_in_single_pages_is_fragmented_and_memory_that_is_used_up_is_not() -> None:
    pieces, empty = Zone(0, "Normal", (1000, 0, 0)), Zone(0, "Normal", (0, 0, 0))
    assert unusable([pieces], 1) == 1.0 and index([pieces], 1) == pytest.approx(1 - 501 / 1000)
    assert unusable([empty], 1) == 1.0 and index([empty], 1) == 0.0
    assert unusable([Zone(0, "DMA", (0, 0, 1)), Zone(0, "Normal", (4, 0, 0))], 2) == 0.5


def test_it_watches_free_memory_and_what_the_kernel_does_about_it(tmp_path: Path) -> None:
    probe = FragmentationProbe(orders=(9, 4))
    seen = watched(probe, tmp_path, "true")
    found = seen.totals()
    assert 0 <= found["unusable.order-4"] <= found["unusable.order-9"] <= 1
    assert {"extfrag.order-4", "extfrag.order-9", "compaction.stalls", "reclaim.stalls"} <= found.keys()
    assert set(seen.series["metric"]) == {"unusable.order-4", "unusable.order-9"}
