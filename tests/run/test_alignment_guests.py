"""Block requests of guests, counted in each guest's kernel, and beneath them on this machine at the same time."""

from __future__ import annotations

import polars as pl

from laboratory import Laboratory
from laboratory.guests import needs_guests

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
