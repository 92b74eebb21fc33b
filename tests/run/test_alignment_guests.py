"""Block requests of guests, counted in each guest's kernel, and beneath them on this machine at the same time."""

from __future__ import annotations

import polars as pl
import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from storlab.errors import MissingImage
from storlab.images.image import find_image

STUDY = """
primary = "write.aligned.4k"
repeat = { until = "max", min = 1, max = 1 }
trial = { settle = { sync = false, drop_caches = false } }

[nodes.vm]
kind = "vm"
count = 2
memory = "256M"
disk = [{ layer = "file", size = "64M" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]

[probes.alignment]
[probes.host-load]

[workload.write]
on = ["vm"]
fio = { rw = "write", bs = "16k", size = "4M", direct = 1, ioengine = "psync" }
"""


@needs_guests
def test_each_guest_counts_its_own_disk_with_btf(lab: Laboratory) -> None:
    lab.execute(STUDY)
    (record,) = lab.records()
    assert (record.status, record.reason) == ("done", None)
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet")
    big = requests.filter(pl.col("operation") == "write", pl.col("length") == 16384)
    assert dict(big.group_by("node").agg(pl.col("count").sum()).iter_rows()).keys() == {"vm-1", "vm-2"}
    assert big["count"].sum() >= 2 * 256, "fio wrote 4M in pieces of 16k in each"
    for node in ("vm-1", "vm-2"):
        raw = lab.out / "trials" / "0001" / node / "probe-alignment"
        assert any(b'"hook":"btf"' in file.read_bytes() for file in raw.iterdir())
    assert lab.leftovers() == []


SHIFTED = """
primary = "write.aligned.16k"
repeat = { until = "max", min = 1, max = 1 }

[trial]
settle = { sync = false, drop_caches = false }
prepare = [["sh", "-c", "modprobe dm-mod && dmsetup create moved --table '0 65536 linear {target} 2049'"]]

[nodes.vm]
kind = "vm"
memory = "256M"
disk = [{ layer = "file", size = "64M" }]

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
    summary = lab.execute(SHIFTED).summary
    (record,) = lab.records()
    assert (record.status, record.reason, record.nodes["vm"].disk) == ("done", None, "vdc")
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
disk = [{ layer = "file", size = "512M" }]
stack = [{ layer = "zpool" }, { layer = "zvol", size = "64M", volblocksize = "16k" }]

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
    assert (record.status, record.reason, record.nodes["vm"].disk) == ("done", None, "zd0")
    requests = pl.read_parquet(lab.out / "tables" / "requests.parquet").filter(pl.col("operation") == "write")
    assert requests.group_by("disk", "length").agg(pl.col("count").sum()).rows() == [("zd0", 16384, 256)]
    assert any("zd0 makes no requests of its own" in warning for warning in summary.warnings)
    assert lab.leftovers() == []
