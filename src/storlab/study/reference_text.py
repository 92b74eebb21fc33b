"""What ``docs/reference/study.md`` says beyond the schema: its frame, and examples, each of which loads."""

# ruff: noqa: E501 - lines of a page, not of a program

from __future__ import annotations

START = """# Study files

<!-- Written by `python -m storlab.study.reference`; change the models' descriptions, or reference_text.py. -->

A study is a [TOML](https://toml.io/en/v1.0.0) file. `storlab plan FILE` checks it and runs nothing; `storlab schema` prints
its JSON Schema, by which editors complete and check it. Every mistake is told with file, line and key, and nothing is run.

**Sizes** are bytes, or text with k, M, G, T or P, which are powers of 1024: `4096`, `"4k"`, `"1.5G"`. **Durations** are
seconds, or text with us, ms, s, m, h or d: `60`, `"250ms"`, `"1h30m"`. **Shares** are text such as `"5%"`, or `0.05`.

**Words in braces** put in a level or a parameter, anywhere in `stack`, `nodes`, `workload`, `probes` and `trial`:

- `"{bs}"` alone becomes the level's value, with its type: a number stays a number, a table a table.
- In a list, a value that is itself a list is spliced in: `["{disk}", { layer = "mount" }]`.
- `"{mode.direct}"` is one key of a level that is a table.
- In a longer text the value is put in as text: `"file-{bs}"`.
- `"{{"` and `"}}"` stand for braces.
- `{target}`, `{node}`, `{round}`, `{trial}` and `{seed}` are filled in when a trial runs, in workloads and in `trial.prepare`,
  `precondition` and `verify`: the directory or device under test, the node's name, the numbers of round and trial, and the
  round's random seed.

On the command line, `--set PATH=VALUE` changes any key for one run: `--set repeat.max=10`, `--set stack.0.size=1G`,
`--set nodes.vm.count=8`, and `--set size=1G` for a parameter. `--only FACTOR=LEVEL[,LEVEL]` leaves out other levels.
"""

END = """## Limits

At most 10,000 cells, 4 MiB of text, and 256 nodes in a group. Names are up to 63 letters, digits, `-` and `_` (those of
workloads and nodes also `.`) and begin with a letter. A level's name is up to 60 characters that can be printed; a level
that is a table or a list, or whose text is longer, is given one: `[factors.options]` and `plain = ""`.
"""

BEFORE_EACH = {
    "Layers": """A stack is a list of layers, the lowest first; each takes what the one beneath gives. Every key may be a word in braces.
""",
    "Workloads": """`[workload.NAME]` holds one of these tables, and optionally `on`: the names of the groups of nodes that it runs on, by
default all. All workloads of a cell run at once.
""",
    "Probes": """`[probes]` holds a table for each probe that watches; without `[probes]`, all of these do but `alignment`, which needs root,
and an empty `[probes]` means none.
""",
}

AFTER_EACH = {
    "study": """**Profiles** are sets of values for parameters, of which `--set profile=NAME` takes one; what is set by `--set` besides
wins.
""",
    "nodes": """The name `host` means this machine, once. Several nodes of kind `local` are several agents on it.

A group without a `stack` of its own has the study's, unless no workload runs on it: then it has none, and may still be
what the disks of others are made on. A study whose nodes all have a stack or a disk needs none at the top.

`disk` is a stack, too: it begins on the node that `disk_on` names and ends in the virtual machine, where `stack` goes on.
Up to its last pool or directory it stands once for the whole group, and above that once for each machine. Where it is made
on a virtual machine it is [exported](#layer-nbd-export) by itself. See [virtual machines](../how-to/virtual-machines.md).
""",
    "hardware": """These are further keys of `nodes`, where `kind` is `"vm"`, or `"auto"` and that becomes a virtual machine.
""",
}

EXAMPLES = {
    "study": """
schema  = 1
title   = "ext4 or XFS for small synchronous writes?"
primary = "write.iops"
stack   = [{ layer = "file", size = "256M" }, { layer = "loop" }, "{fs}", { layer = "mount" }]

[parameters]                        # --set runtime=10s
runtime = "3s"

[factors.fs]                        # named levels: a value, a layer, or a whole stack
ext4 = { layer = "mkfs", type = "ext4" }
xfs  = { layer = "mkfs", type = "xfs" }

[factors.bs]                        # plain levels
levels = ["4k", "64k"]

[workload.random-write]
fio = { rw = "randwrite", bs = "{bs}", fsync = 1, size = "64M", runtime = "{runtime}", time_based = true }
""",
    "study more": """
[parameters]
size    = "64M"
runtime = "3s"

[profiles.full]                     # --set profile=full
size    = "4G"
runtime = "60s"

[workload.write]
fio = { rw = "write", size = "{size}", runtime = "{runtime}", time_based = true }
""",
    "repeat": """
[repeat]
until = "±5%"
min   = 5
max   = 20
""",
    "compare": """
[factors]
mode = ["buffered", "direct", "sync"]

[[compare]]
factor  = "mode"
pairs   = [["buffered", "direct"], ["buffered", "sync"]]
metrics = ["write.iops", "write.latency.p99"]
margin  = "2%"
""",
    "nodes": """
[nodes.writers]
count = 2

[nodes.readers]
count = 4
stack = [{ layer = "directory", path = "/srv" }]

[workload.write]
on  = "writers"
fio = { rw = "write", size = "64M" }

[workload.read]
on  = "readers"
fio = { rw = "read", size = "64M" }
""",
    "nodes more": """
[nodes.vm]                          # vm-1 to vm-4, each with a disk that is a clone of one volume
kind    = "vm"
count   = 4
disk    = [{ layer = "zpool" }, { layer = "zvol", base = { size = "1G", written = "64M" } }]
disk_on = "storage"
stack   = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]

[nodes.storage]                     # this machine where it has ZFS, else a virtual machine that has it
kind   = "auto"
memory = "1536M"
disk   = [{ layer = "file", size = "8G" }]
""",
    "hardware": """
[nodes.vm]
kind   = "vm"
memory = "1G"
cpus   = "{cpus}"
pin    = "0-1"
start  = "cold"
disk   = [{ layer = "file", size = "1G" }]
stack  = [{ layer = "mkfs", type = "xfs" }, { layer = "mount" }]

[factors]
cpus = [1, 2]
""",
    "trial": """
[trial]
prepare      = [["mkdir", "-p", "{target}/data"]]
precondition = { fio = { rw = "write", bs = "1M", size = "64M", filename = "aged" } }
warm_up      = "2s"
verify       = [["test", "-d", "{target}/data"]]
timeout      = "5m"
""",
    "settle": """
[trial]
settle = { sync = true, drop_caches = false, wait = "1s" }
""",
    "timeouts": """
[factors]
bs = ["512", "1M"]

[[trial.timeouts]]
where   = { bs = "512" }
timeout = "30m"
""",
    "layer directory": """
stack = [{ layer = "directory", path = "/srv" }]
""",
    "layer file": """
stack = [{ layer = "file", size = "1G", allocate = "preallocated" }, { layer = "loop" }]
""",
    "layer loop": """
stack = [{ layer = "file", size = "1G" }, { layer = "loop", sector_size = "4k", direct_io = true }]
""",
    "layer device": """
stack = [{ layer = "device", path = "/dev/disk/by-id/nvme-SCRATCH", wipe = "/dev/disk/by-id/nvme-SCRATCH" }]
""",
    "layer mkfs": """
stack = ["{disk}", { layer = "mkfs", type = "xfs", block_size = "4k", reflink = false }, { layer = "mount" }]

[factors.disk]
sectors-of-512 = [{ layer = "file", size = "1G" }, { layer = "loop" }]
sectors-of-4k  = [{ layer = "file", size = "1G" }, { layer = "loop", sector_size = "4k" }]
""",
    "layer mount": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount", options = "noatime,data=journal" },
]
""",
    "layer image-copy": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "image-copy", base = { size = "1G", written = "64M" } }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
    "layer image-clone": """
[nodes.vm]
kind  = "vm"
count = 2
disk  = ["{clone}", { layer = "virtio-blk" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]

[factors.clone]
overlay = { layer = "image-clone", base = { size = "1G", written = "64M" }, cluster_size = "64k" }
reflink = [
  { layer = "file", size = "8G" },
  { layer = "loop" },
  { layer = "mkfs", type = "xfs" },
  { layer = "mount" },
  { layer = "image-clone", base = { size = "1G", written = "64M" }, method = "reflink" },
]
""",
    "layer qcow2": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "qcow2", size = "1G", cluster_size = "64k", preallocation = "metadata" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
    "layer zpool": """
stack = [
  { layer = "zpool", layout = "mirror", size = "2G", ashift = 12, module = { zfs_txg_timeout = 1 } },
  { layer = "zfs" },
]
""",
    "layer zvol": """
stack = [
  { layer = "zpool", size = "4G" },
  { layer = "zvol", size = "1G", volblocksize = "4k", logbias = "throughput", properties = { checksum = "off" } },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
""",
    "layer zfs": """
stack = [{ layer = "zpool", size = "4G" }, { layer = "zfs", recordsize = "{recordsize}", compression = "off" }]

[factors]
recordsize = ["16k", "128k"]
""",
    "layer nbd-export": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "file", size = "1G" }, { layer = "nbd-export", cache = "writeback" }, { layer = "virtio-blk" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
    "layer virtio-blk": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "file", size = "1G" }, { layer = "virtio-blk", cache = "{cache}", aio = "io_uring", iothread = true }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]

[factors]
cache = ["none", "writeback", "writethrough"]
""",
    "layer virtio-scsi": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "file", size = "1G" }, { layer = "virtio-scsi", logical_block_size = "4k", queues = 2 }]
stack = [{ layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer nvme": """
[nodes.vm]
kind  = "vm"
disk  = [{ layer = "file", size = "1G" }, { layer = "nvme", cache = "directsync" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
    "base image": """
[nodes.vm]
kind  = "vm"
count = 4
disk  = [{ layer = "image-clone", base = { file = "/srv/images/debian.qcow2" }, size = "20G" }]
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
""",
    "workload fio": """
[workload.log-and-readers.fio]      # every key but jobs and job_file is an option of fio's own, see fio(1)
ioengine   = "psync"
size       = "64M"
runtime    = "5s"
time_based = true

[workload.log-and-readers.fio.jobs.log]
rw    = "write"
bs    = "4k"
fsync = 1

[workload.log-and-readers.fio.jobs.readers]
rw      = "randread"
numjobs = 4
""",
    "workload files": """
[workload.storm.files]
files       = 50000
size        = "{size}"
directories = { depth = 2, fan_out = 16 }
workers     = 2
fsync       = "file"
order       = "random"

[factors.size]
small     = "4k"
even      = { min = "1k", max = "64k" }
lognormal = { median = "4k", sigma = 1.5, max = "1M" }
weighted  = [{ size = "4k", weight = 9 }, { size = "1M", weight = 1 }]
""",
    "workload command": """
[workload.copy.command]
argv    = ["dd", "if=/dev/zero", "of={target}/zeros", "bs=1M", "count=64", "conv=fsync"]
env     = { LC_ALL = "C" }
metrics = [
  { name = "write.bandwidth", from = "stderr", regex = '([\\d.]+) MB/s', unit = "B/s", scale = 1e6, better = "higher" },
]
""",
    "probe host-load": """
[probes]
host-load = { interval = "500ms" }
""",
    "probe stalls": """
[probes]
stalls = { threshold = "250ms" }
""",
    "probe guests": """
[probes]
guests = { interval = "500ms" }
""",
    "probe alignment": """
[probes]
alignment = { on = "host", disks = ["nvme0n1"], by_comm = true }
""",
}
