"""Studies that are as small as studies can be."""

from __future__ import annotations

FIO = '{ rw = "randwrite", bs = "4k", ioengine = "psync", size = "1M", runtime = "200ms", time_based = true }'

LOOPS = f"""
primary = "bandwidth"
stack = [{{ layer = "file", size = "320M" }}, {{ layer = "loop" }}, "{{fs}}", {{ layer = "mount" }}]
repeat = {{ until = "max", min = 2, max = 2 }}
trial = {{ settle = {{ drop_caches = false }} }}
[factors.fs]
ext4 = {{ layer = "mkfs", type = "ext4" }}
xfs = {{ layer = "mkfs", type = "xfs" }}
[workload.writes]
fio = {FIO}
"""
"""Two file systems on loop devices, two rounds: four trials, which leave the machine its page cache."""

POWER_CUTS = """
schema  = 1
title   = "Speed and safety"
primary = "commit.rate"
repeat  = { min = 1, max = 1, until = "max" }
[probes]
[nodes.vm]
kind   = "vm"
memory = "256M"
stack  = [
  { layer = "file", size = "64M" }, { layer = "virtio-blk", cache = "{cache}" },
  { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]
[factors]
cache = ["none", "unsafe"]
[workload.commits]
on     = ["vm"]
ledger = { runtime = "2s", commit = "rename" }
[crash]
moments = 10
"""
"""A study whose two set-ups differ in what a power cut takes; it has a heading of its own."""


def directory(workload: str, *, rounds: int = 1, trial: str = "", rest: str = "") -> str:
    """One workload in a directory; needs no root. ``rest``: tables at the end of the study."""
    primary = "bandwidth" if workload.startswith("fio") else "elapsed"
    return f"""
primary = "{primary}"
stack = [{{ layer = "directory" }}]
repeat = {{ until = "max", min = {rounds}, max = {rounds} }}
trial = {{ {", ".join(filter(None, ["settle = { sync = false, drop_caches = false }", trial]))} }}
[probes]
[workload.load]
{workload}
{rest}
"""
