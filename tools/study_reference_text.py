"""What ``docs/reference/study.md`` says beyond the schema: its frame, and examples, each of which loads."""

# ruff: noqa: E501 - lines of a page, not of a program

from __future__ import annotations

START = """# Study files

<!-- Written by `python -m tools.study_reference`; change the models' descriptions, or study_reference_text.py. -->

A study is a [TOML](https://toml.io/en/v1.0.0) file. `storlab plan FILE` checks it and runs nothing; `storlab schema` prints
its JSON Schema, by which editors complete and check it. Every mistake is reported with file, line and key, and nothing is run.

**Sizes** are bytes, or text with k, M, G, T or P, which are powers of 1024: `4096`, `"4k"`, `"1.5G"`. **Durations** are
seconds, or text with us, ms, s, m, h or d: `60`, `"250ms"`, `"1h30m"`. **Shares** are text such as `"5%"`, or `0.05`.
**Bandwidths** are bits per second, or text with kbit, Mbit or Gbit, which are powers of 1000: `"100Mbit"`.

**Words in braces** put in a level or a parameter, anywhere in `stack`, `nodes`, `network`, `workload`, `probes` and `trial`:

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
    "Kinds of nodes": """A node runs an agent, to which Storlab speaks. These are the keys of each kind beside those of every group; another package
may [add kinds](../how-to/add-a-layer.md#register-it).
""",
    "Layers": """A stack is a list of layers, the lowest first; each takes what the one below gives. Every key may be a word in braces. A layer
that says "Crosses" is a [crossing](#nodes). These keys are common to all layers:
""",
    "Workloads": """`[workload.NAME]` holds one of these tables, and optionally

- `on`: what it runs on, a name or a list of names. `"vm"` is the stack of these nodes, `"vm:share"` their further chain
  `share`. By default it runs on all nodes but those whose stack others continue.
- `shared_files`: where several nodes work in one directory, each has files of `"own"` there (the default), or all use the
  `"same"`.

All workloads of a cell run at once.
""",
    "Probes": """`[probes]` holds a table for each probe that watches; without `[probes]`, `host-load`, `stalls` and `processes` do,
and an empty `[probes]` means none.
""",
}

AFTER_EACH = {
    "study": """**Profiles** are sets of values for parameters, of which `--set profile=NAME` takes one; what `--set` sets by itself
counts more.
""",
    "claim": """The report answers each: it holds, does not hold, is undecided, or was not measured, with the reason. The comparison that
answers it is one of the study's, or becomes one: it counts among those for which [every verdict](../explanation/statistics.md#claims)
needs more evidence. Values are in base units (B, s, 1/s, B/s); with several cells `at` these levels, each is answered.

A level that only another value of a parameter has, such as a profile's, is no mistake: without it the claim is not measured.
""",
    "nodes": """The name `host` means this machine, once. Several nodes of kind `local` are several agents on it.

A group without a `stack` of its own has the study's, unless no workload runs on it. A study whose nodes all have a stack
needs none at the top.

**Crossings.** One layer of a stack may be a crossing, such as `virtio-blk` or `nbd`: what is below it is set up on the one
node that `from` names, by default this machine, on top of what that node's own stack gives; the crossing and all above it on
the group's own nodes. Without a crossing, what the other node would have served is set up on the group's own nodes, and the
other is not started: the local case of the same study. `storlab plan` shows where each layer is set up. See
[chains that cross nodes](../how-to/chains-that-cross-nodes.md).

**Lifetimes.** `keep` says how long nodes and layers stay set up, `once` which layers below a crossing all nodes of the group
share. Nothing is kept for longer than what it stands on. What is kept for a `round` makes blocks: the trials that use it run
one after the other. See [keep what takes long to set up](../how-to/keep-stacks-for-speed.md).
""",
    "tcp": """What is not written is as the kernel has it. `storlab` reads back what took, as a fact of each trial, and gives the old
values back. There is no `fack`: Linux has none since 4.15.
""",
    "network": """Each node's own card does it with what that node sends, so a round trip has twice the delay, and loses in both directions.
What a card, its port and TCP really have is read back as facts of each trial, with round trips that were measured; what did not
take is an error. Where a kernel has no netem, a delay or a loss is unsupported. See
[shape the network](../how-to/shape-the-network.md).
""",
    "extra": """A layer names further chains of its node (`vdevs = ["d"]`), a workload runs on one (`on = "vm:share"`). Their table's name is
theirs.
""",
}


def _shared(server: str, client: str) -> str:
    return f"""
[nodes.server]
kind  = "vm"
stack = [{{ layer = "file", size = "512M" }}, {{ layer = "virtio-blk" }}, {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{{ {server} }}, {{ {client} }}]
"""


EXAMPLES: dict[str, str] = {
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
    "claim": """
[factors]
mode = ["buffered", "direct", "sync"]

[[claim]]
name   = "Direct writes are more than twice as fast as synchronous ones"
source = "a colleague"
metric = "write.iops"
left   = { mode = "direct" }
right  = { mode = "sync" }
expect = "more than 2x"

[[claim]]
name    = "Synchronous writes take from 1 to 20 ms"
metric  = "write.latency.mean"
at      = { mode = "sync" }
between = [0.001, 0.02]
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
kind  = "vm"
count = 4
from  = "storage"
stack = [
  { layer = "zpool" },
  { layer = "zvol", base = { size = "1G", written = "64M" } },
  { layer = "virtio-blk" },         # the crossing: what is above is in each virtual machine
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]

[nodes.storage]                     # this machine where it has ZFS, else a virtual machine that has it
kind      = "vm"
placement = "auto"
keep      = "run"
memory    = "1536M"
stack     = [{ layer = "file", size = "8G" }, { layer = "virtio-blk" }]
""",
    "extra": """
[nodes.vm]                          # a raidz of three disks, and a folder of this machine
kind        = "vm"
stack       = [{ layer = "zpool", layout = "raidz1", vdevs = ["d"] }, { layer = "zfs" }]
extra.d     = { count = 3, stack = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }] }
extra.share = { stack = [{ layer = "directory" }, { layer = "9p" }] }

[workload.in-the-pool]
on  = "vm"
fio = { rw = "write", size = "64M" }

[workload.in-the-folder]
on  = "vm:share"
fio = { rw = "write", size = "64M" }
""",
    "tcp": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }, { layer = "nbd-export" }]
tcp   = { sack = false, congestion_control = "reno" }

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nbd" }]
tcp   = { sack = false }
""",
    "network": """
[factors]
delay = ["0ms", "5ms"]

[network]
bandwidth = "1Gbit"
delay     = "{delay}"
mtu       = 9000

[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }, { layer = "nbd-export" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nbd" }]
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
    "crash": """
[crash]
moments = 100
load    = { sql-ledger = { runtime = "10s" } }
""",
    "kind local": """
[nodes.writers]
kind  = "local"
count = 2
""",
    "kind netns": """
[nodes.server]
kind  = "netns"
stack = [{ layer = "file", size = "1G" }]

[nodes.client]
kind  = "netns"
from  = "server"
stack = [{ layer = "nbd-export" }, { layer = "connect" }]

[workload.read]
command = { argv = ["fio", "--name=read", "--rw=read", "--ioengine=nbd", "--uri={target}"] }
""",
    "kind vm": """
[nodes.vm]
kind   = "vm"
memory = "1G"
cpus   = "{cpus}"
pin    = "0-1"
start  = "cold"
stack  = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]

[factors]
cpus = [1, 2]
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
    "layer fill": """
stack = [
  { layer = "device", path = "/dev/disk/by-id/nvme-SCRATCH", wipe = "/dev/disk/by-id/nvme-SCRATCH", purge = "discard", keep = "run" },
  { layer = "fill", passes = 2, keep = "run" },
]

[trial]
setup_timeout = "6h"                # it writes the whole disk
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
    "layer overlayfs": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "xfs" },
  { layer = "mount" },
  { layer = "overlayfs", files = 2000, size = "16k" },
]

[workload.copy-up]
command = { argv = ["chmod", "--recursive", "g+w", "{target}/image"] }
""",
    "layer image-copy": """
[nodes.vm]
kind  = "vm"
stack = [
  { layer = "image-copy", base = { size = "1G", written = "64M" } },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
""",
    "layer image-clone": """
[nodes.vm]
kind  = "vm"
count = 2
stack = ["{clone}", { layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]

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
stack = [
  { layer = "qcow2", size = "1G", cluster_size = "64k", preallocation = "metadata" },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
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
stack = [
  { layer = "file", size = "1G" },
  { layer = "nbd-export", cache = "writeback" },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
""",
    "layer iscsi-target": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "iscsi-target", initial_r2t = false }, { layer = "iscsi" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer nvme-target": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nvme-target", inline_data = "4k" }, { layer = "nvme-tcp" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer aoe-target": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "aoe-target", buffers = 128 }, { layer = "aoe" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer relay": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "1G" }, { layer = "virtio-blk" }, { layer = "nbd-export" }, { layer = "relay", nagle = true }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nbd" }]
""",
    "layer virtio-blk": """
[nodes.vm]
kind  = "vm"
stack = [
  { layer = "file", size = "1G" },
  { layer = "virtio-blk", cache = "{cache}", aio = "io_uring", iothread = true },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]

[factors]
cache = ["none", "writeback", "writethrough"]
""",
    "layer virtio-scsi": """
[nodes.vm]
kind  = "vm"
stack = [
  { layer = "file", size = "1G" },
  { layer = "virtio-scsi", logical_block_size = "4k", queues = 2 },
  { layer = "mkfs", type = "xfs" },
  { layer = "mount" },
]
""",
    "layer nvme": """
[nodes.vm]
kind  = "vm"
stack = [
  { layer = "file", size = "1G" },
  { layer = "nvme", cache = "directsync" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
""",
    "layer nbd": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nbd-export" }, { layer = "nbd", queue_depth = 64 }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer iscsi": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "iscsi-target" }, { layer = "iscsi", max_sectors = "128k" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer nvme-tcp": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "nvme-target" }, { layer = "nvme-tcp", queues = 2 }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer aoe": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]
kind  = "vm"
from  = "server"
stack = [{ layer = "aoe-target" }, { layer = "aoe", give_up = "30s" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
""",
    "layer connect": """
[nodes.server]
kind  = "vm"
stack = [{ layer = "file", size = "2G" }, { layer = "virtio-blk" }]

[nodes.client]                      # where fio reads the export itself
kind  = "vm"
from  = "server"
stack = [{ layer = "nbd-export" }, { layer = "connect" }]

[workload.read]
command = { argv = ["fio", "--name=read", "--rw=read", "--ioengine=nbd", "--uri={target}"] }
""",
    "layer virtiofsd": """
[factors.daemon]                    # the same, with and without threads of its own
one  = { layer = "virtiofsd", cache = "always", xattr = true }
many = { layer = "virtiofsd", cache = "always", xattr = true, thread_pool = 16 }

[nodes.vm]
kind  = "vm"
stack = [{ layer = "directory" }, "{daemon}", { layer = "virtiofs" }]
""",
    "layer virtiofs": """
[nodes.vm]                          # three virtual machines on one XFS of this machine, each with a daemon of its own
kind  = "vm"
count = 3
stack = [
    { layer = "file", size = "2G" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" },
    { layer = "virtiofsd", cache = "always" }, { layer = "virtiofs", queue_size = 1024 },
]
""",
    "layer 9p": """
[nodes.vm]                          # two virtual machines with one folder of this machine
kind  = "vm"
count = 2
stack = [{ layer = "directory" }, { layer = "9p", cache = "mmap" }]
""",
    "layer nfs-export": _shared('layer = "nfs-export", versions = ["3"]', 'layer = "nfs", version = "3"'),
    "layer nfs": _shared('layer = "nfs-export"', 'layer = "nfs", rsize = "64k", wsize = "64k"'),
    "layer smb-share": _shared('layer = "smb-share"', 'layer = "smb"'),
    "layer smb": _shared('layer = "smb-share"', 'layer = "smb", give_up = "5s"'),
    "layer ssh-share": _shared('layer = "ssh-share"', 'layer = "sshfs"'),
    "layer sshfs": _shared('layer = "ssh-share"', 'layer = "sshfs", give_up = "5s"'),
    "layer mariadb": """
stack = [{ layer = "directory" }, { layer = "mariadb", doublewrite = false, settings = { innodb_io_capacity = 2000 } }]

[workload.clients]
sysbench = { tables = 2, rows = 1000, threads = 4 }
""",
    "layer mysql": """
stack = [{ layer = "directory" }, { layer = "mysql", log_size = "1G", settings = { innodb_io_capacity = 2000 } }]

[workload.clients]
sysbench = { tables = 2, rows = 1000, threads = 4 }
""",
    "layer postgresql": """
stack = [{ layer = "directory" }, { layer = "postgresql", full_page_writes = false, data = { scale = 10 } }]

[workload.clients]
pgbench = { threads = 4 }
""",
    "base image": """
[nodes.vm]
kind  = "vm"
count = 4
stack = [
  { layer = "image-clone", base = { file = "/srv/images/debian.qcow2" }, size = "20G" },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
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
    "workload bonnie": """
[workload.classic]
bonnie = { size = "64M", fast = true, direct = true }
""",
    "workload posix": """
[workload.check]
posix = {}

[workload.locks]
posix = { checks = ["lock-records", "lock-wait", "lock-open-file", "flock"], limit = "5s" }
""",
    "workload ledger": """
[workload.commits]
ledger = { commit = "rename", runtime = "10s" }

[workload.pages]
ledger = { commit = "overwrite", record_size = "16k", doublewrite = true }
""",
    "workload sysbench": """
stack = [{ layer = "directory" }, { layer = "mariadb", data = { tables = 4, rows = 50000 } }]

[workload.clients]
sysbench = { test = "oltp_write_only", threads = 8, runtime = "30s", options = { skip_trx = true } }
""",
    "workload pgbench": """
stack = [{ layer = "directory" }, { layer = "postgresql", data = { scale = 10 } }]

[workload.clients]
pgbench = { test = "simple-update", threads = 8, workers = 2, runtime = "30s", rate = 200 }
""",
    "workload sql-ledger": """
stack = [{ layer = "directory" }, { layer = "postgresql" }]

[workload.commits]
sql-ledger = { rows = 10000, runtime = "10s" }
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
    "probe processes": """
[probes]
processes = { interval = "500ms" }
""",
    "probe alignment": """
[probes]
alignment = { at = "below", disks = ["nvme0n1"], by_comm = true }
""",
    "probe tcp": """
[probes]
tcp = {}
""",
    "probe share-requests": """
[probes]
share-requests = {}
""",
    "probe server": """
[probes]
server = { interval = "500ms" }
""",
}
