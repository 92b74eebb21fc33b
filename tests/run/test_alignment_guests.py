"""Block requests of guests, counted in each guest's kernel, and at the other end on the node that has their disks."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.errors import MissingImage
from storlab.images.image import find_image
from storlab.probes.subject import read_subject

MIB = 1024 * 1024
STUDY = """
primary = "write.aligned.4k"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }

[nodes.store]
stack = [
  { layer = "file", size = "256M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]

[nodes.vm]
kind = "vm"
count = 2
memory = "256M"
from = "store"
stack = [
  { layer = "file", size = "64M" }, { layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]

[probes]
alignment = { at = "each" }
host-load = {}
stalls    = {}
processes = { interval = "200ms" }

[workload.write]
on = ["vm"]
fio = { rw = "write", bs = "16k", size = "4M", direct = 1, ioengine = "psync" }
"""


@pytest.fixture(scope="module")
def both_ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One run for the tests of both ends."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("ends")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        lab = Laboratory(folder)
        lab.execute(STUDY)
        assert lab.leftovers() == []
        yield lab


def metrics(lab: Laboratory) -> pl.DataFrame:
    return pl.read_parquet(lab.out / "tables" / "metrics.parquet").filter(pl.col("job").is_null())


def one(rows: pl.DataFrame, **where: str) -> float:
    (value,) = rows.filter(pl.col("node").is_null(), **where)["value"].to_list()
    return float(value)


@needs_guests
def test_each_end_has_numbers_of_its_own(both_ends: Laboratory) -> None:
    rows = metrics(both_ends)
    assert one(rows, source="probe:alignment", metric="write.bytes") >= 2 * 4 * MIB
    assert one(rows, source="probe:alignment@store", metric="write.bytes") >= 2 * 4 * MIB
    nodes = rows.filter(pl.col("node").is_not_null(), metric="stall.longest").select("source", "node").rows()
    assert {(source, node) for source, node in nodes if source != "write"} == {
        ("probe:stalls", "vm-1"),
        ("probe:stalls", "vm-2"),
        ("probe:stalls@store", "store"),
    }
    raw = both_ends.out / "trials" / "0001"
    guest, store = (read_subject(raw / node / "probe-alignment") for node in ("vm-1", "store"))
    assert (guest.end, guest.group, guest.disks) == ("load", "vm", ("vdc",))
    assert (store.end, store.above) == ("below", ("vm-1", "vm-2"))


@needs_guests
def test_what_guests_and_their_host_did_is_never_added_up(both_ends: Laboratory) -> None:
    rows = metrics(both_ends)
    of_machines = rows.filter(pl.col("source").str.starts_with("probe:host-load"), pl.col("node").is_not_null())
    where = {(source, node) for source, node in of_machines.select("source", "node").iter_rows()}
    assert where == {("probe:host-load", "vm-1"), ("probe:host-load", "vm-2"), ("probe:host-load@host", "host")}
    for name in ("disk.target.bytes_written", "cpu.idle"):
        mine = of_machines.filter(source="probe:host-load", metric=name)["value"]
        together = mine.sum() if name.startswith("disk") else mine.mean()
        assert one(rows, source="probe:host-load", metric=name) == pytest.approx(together)
    (host,) = of_machines.filter(source="probe:host-load@host", metric="cpu.idle")["value"].to_list()
    assert one(rows, source="probe:host-load@host", metric="cpu.idle") == host


@needs_guests
def test_what_is_written_beneath_is_for_each_byte_above(both_ends: Laboratory) -> None:
    rows = metrics(both_ends)
    written = one(rows, source="backing@store", metric="backing.write.bytes")
    asked = one(rows, source="write", metric="write.bytes")
    assert asked == 2 * 4 * MIB
    assert one(rows, source="backing@store", metric="write.amplification.backing") == written / asked
    assert one(rows, source="storage", metric="write.amplification") > 0
    cpus = one(rows, source="probe:processes@host", metric="guests.cpu")
    each = [one(rows, source="probe:processes@host", metric=f"guest.vm-{number}.cpu") for number in (1, 2)]
    assert cpus == pytest.approx(sum(each))
    assert min(each) > 0


@needs_guests
def test_each_guest_counts_its_own_disk_with_btf(both_ends: Laboratory) -> None:
    lab = both_ends
    (record,) = lab.records()
    assert (record.status, record.reason) == ("done", None)
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet").filter(source="probe:alignment")
    big = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    assert dict(big.group_by("node").agg(pl.col("count").sum()).iter_rows()).keys() == {"vm-1", "vm-2"}
    assert big["count"].sum() >= 2 * 256, "fio wrote 4M in pieces of 16k in each"
    for node in ("vm-1", "vm-2"):
        raw = lab.out / "trials" / "0001" / node / "probe-alignment"
        assert any(b'"hook":"btf"' in file.read_bytes() for file in raw.iterdir())


SHIFTED = """
primary = "write.aligned.16k"
repeat = { until = "max", min = 1, max = 1 }

[trial]
settle = { sync = false, drop_caches = false }
prepare = [["sh", "-c", "modprobe dm-mod && dmsetup create moved --table '0 65536 linear {target} 2049'"]]

[nodes.vm]
kind = "vm"
memory = "256M"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]

[probes.alignment]
disks = ["dm-0", "vdc"]

[workload.write]
on = ["vm"]
command = { argv = ["sh", "-c", '''
fio --name=x --filename=/dev/dm-0 --rw=write --bs=16k --size=4M --direct=1 >&2 && dmsetup remove moved
'''] }
"""


@needs_guests
def test_a_device_mapper_disk_has_whole_units_and_the_disk_beneath_what_became_of_them(lab: Laboratory) -> None:
    """It is gone when the counts are read, and keeps its name."""
    summary = lab.execute(SHIFTED, unconfined=True).summary
    (record,) = lab.records()
    assert (record.status, record.reason, record.nodes["vm"].disks) == ("done", None, ["vdc"])
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet")
    writes = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    aligned = (pl.col("offset_alignment") == 0) | (pl.col("offset_alignment") >= 16384)
    seen = writes.group_by("disk").agg(pl.col("count").sum(), pl.col("count").filter(aligned).sum().alias("aligned"))
    assert sorted(seen.rows()) == [("dm-0", 256, 256), ("vdc", 256, 0)]
    said = " ".join(summary.warnings)
    assert "dm-0 makes no requests of its own" in said
    assert "dm-0 lies on vdc, and both are watched" in said
    assert lab.leftovers() == []


VOLUME = """
primary = "write.aligned.16k"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }

[nodes.vm]
kind = "vm"
memory = "512M"
stack = [
  { layer = "file", size = "512M" },
  { layer = "virtio-blk" },
  { layer = "zpool" },
  { layer = "zvol", size = "64M", volblocksize = "16k" },
]

[probes.alignment]

[workload.write]
on = ["vm"]
fio = { rw = "write", bs = "16k", size = "4M", direct = 1, ioengine = "psync" }
"""


@pytest.mark.slow
@needs_guests
def test_a_zvol_which_makes_no_requests_has_its_bios_counted(lab: Laboratory) -> None:
    try:
        find_image(frozenset({"zfs"}))
    except MissingImage as error:
        pytest.skip(str(error))
    summary = lab.execute(VOLUME).summary
    (record,) = lab.records()
    assert (record.status, record.reason, record.nodes["vm"].disks) == ("done", None, ["zd0"])
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet").filter(pl.col("operation") == "write")
    assert requests.group_by("disk", "length").agg(pl.col("count").sum()).rows() == [("zd0", 16384, 256)]
    assert any("zd0 makes no requests of its own" in warning for warning in summary.warnings)
    assert lab.leftovers() == []
