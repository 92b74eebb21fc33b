"""Loads, their metrics, power cuts, and the machines and networks that they run on, that cannot be."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

WORKLOADS = read(
    r"""
workload.load = "fio"  #! "fio" should be a table
workload.load.fio.job_file = "missing.fio"  #! workload.load.fio.job_file: cannot read missing.fio: No such file or directory
workload.load.fio.job_file = "."  #! cannot read .: Is a directory
trial.precondition = { foi = { rw = "write" } }  #! trial.precondition.foi: unknown kind of workload 'foi'
trial.precondition = "load"  #! "load" should be a table
[workload]  #! {} is too short: it takes at least 1
[workload.load]  #! ledger = { … }, sysbench = { … }, pgbench = { … }, sql-ledger = { … }, command = { … }; here
workload.load = { fio = { rw = "write" }, command = { argv = ["true"] } }  #! a workload is one of
workload.load = { rw = "write", bs = "4k", size = "1M" }  #! this is not a kind of workload; a workload is one of: fio = { … }
workload.load.fio = { read_iolog = "x", replay_redirect = "/dev/sda" }  #! leads away from the stack under test
workload.load.fio = { job_file = "x.fio", jobs = { one = { rw = "read" } } }  #! jobs and job_file exclude each other
workload.load.fio = { job_file = "x.fio", rw = "read" }  #! job_file
workload.load.files = { files = 10, direct = true, block_size = "6k" }  #! with direct, this must be a multiple of 4k

[workload.load]
foi = { rw = "write" }  #! unknown kind of workload 'foi'; did you mean 'fio'?
fio = "rw=write"  #! "rw=write" should be a table
fio = { rw = { read = true } }  #! should be
files = { size = "4k" }  #! files: this key is missing
files = { files = 0 }  #! 0 should be at least 1

[workload."my load!"]  #! "my load!" is not a valid name
fio = { rw = "write" }

[workload.load]
on = "vm"  #! unknown nodes 'vm'; there are: host
on = 3  #! 3 should be the name of nodes, or a list of such names
fio = { rw = "write" }

[workload.load.fio]
rw = "write"
size = "1M\nfilename=/etc/passwd"  #! one line
"size=1M\nfilename" = "/etc/passwd"  #! is not a valid name of an option
output = "x.json"  #! workload.load.fio.output: this option is Storlab's own: leave it out
output-format = "json"  #! this option is Storlab's own
filename = "/dev/sda"  #! workload.load.fio.filename: "/dev/sda" leads away from the stack under test
filename = "a:/dev/sda"  #! leads away from the stack under test
filename = ["a", "/dev/sda"]  #! leads away from the stack under test
filename = "../x"  #! leads away from the stack under test
filename = "{target}/../x"  #! leads away from the stack under test
directory = "/tmp"  #! leads away from the stack under test
filename_format = "/tmp/$jobnum"  #! leads away from the stack under test
jobs = { one = "rw=read" }  #! "rw=read" should be a table
directory = "sub"  #! Storlab gives fio its directory

[workload.load.fio]
rw = "write"
[workload.load.fio.jobs.one]
filename = "/dev/sda"  #! workload.load.fio.jobs.one.filename: "/dev/sda" leads away

[workload.load.fio]
rw = "write"
[workload.load.fio.jobs.global]  #! global
[workload.load.fio.jobs."a]"]  #! "a]" is not a valid name of a job
bs = "4k"

stack = [FILE, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.load]  #! this takes up 256M, but the stack has 64M for it
fio = { rw = "write", size = "64M", numjobs = 4 }

stack = [FILE,
  { layer = "loop" },  #! the stack ends as a Disk, but
]
[workload.load]
fio = { rw = "write", size = "16M", filename = "a" }

[workload.load.fio]  #! outside of [] job section
job_file = "study.toml"

[workload.load.files]
files = 10
worker = 2  #! did you mean 'workers'?
size = { min = "4k" }  #! write a size such as "4k", or { min, max }
size = { median = "4k", sigma = 1, choices = [{ size = "1k", weight = 1 }] }  #! exclude each other: median and sigma
size = { min = "8k", max = "4k" }  #! min is above max
size = [{ size = "4k" }]  #! weight: this key is missing
size = [{ size = "4k", weight = 1e308 }]  #! weight: 1e+308 should
size = { median = "4k" }  #! takes both median and sigma
phases = ["create", "rename"]  #! "rename" is not one of 'create', 'read', 'stat' or 'delete'
phases = ["create", "stat", "stat"]  #! the phase stat is listed twice
phases = ["create", "delete", "read"]  #! delete is the last phase: after it there are no files
phases = ["read", "create"]  #! create is the first phase: before it there are no files
directories = { depth = 4, fan_out = 100 }  #! make more than 1000000 directories
workers = 11  #! 11 workers for 10 files: take fewer workers

stack = [{ layer = "file", size = "16M" }, { layer = "loop" }]  #! the stack ends as a Disk, but
[workload.load]
files = { files = 10 }
"""
)

COMMANDS = read(
    r"""
workload.load.command.argv = ["echo", "a\u0000b"]  #! it holds a NUL
workload.load.command.argv = ["", "x"]  #! the name of a program is empty
trial = { prepare = [["true"], ["nc", "{port}"]] }  #! trial.prepare[1][1]: the stack ends as a Dir, which has no {port}, but {target}
workload.load.command = { argv = ["true"], metrics = [{ name = "x" }] }  #! workload.load.command.metrics[0]: metric x: write either regex or json
workload.load.command = { argv = ["true"], metrics = [{ name = "x", regex = "(1)" }, { name = "x", regex = "(2)" }] }  #! the metric x is listed twice

stack = [
  { layer = "directory" },  #! the stack ends as a Dir, but its workload needs an Export or Server
]
[workload.load]
command = { argv = ["nc", "{host}", "{port}"] }

[workload.load]
command = { argv = ["psql", "{database}", "{export}"] }  #! nothing that a stack can end as has all of
command = { args = ["true"] }  #! did you mean 'argv'?
command = { argv = ["true"], env = { THREADS = 4 } }  #! 4 should be text in quotes
command = { argv = ["true"], expected = -5 }  #! -5 is not a duration

stack = [FILE,
  { layer = "nbd-export" },  #! the stack ends as an Export, but its workload needs a Dir or Disk
]

stack = [FILE, { layer = "loop" }]
[trial]
verify = [["qemu-nbd", "--list", "--export-name={export}"]]  #! the stack ends as a Disk, which has no {export}

stack = [
  { layer = "directory" },  #! the stack ends as a Dir, but its workload needs an Export or Server
]
[trial]
precondition = { command = { argv = ["nc", "-U", "{socket}"] } }
[workload.load]
command = { argv = ["true"] }

[factors]
database = ["mariadb", "postgresql"]  #! {database} is filled in when a trial runs: call this something else
[workload.load]
command = { argv = ["true", "{database}"] }

[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "(1)", json = "a" }]  #! metric x: write either regex or json, one of them
metrics = [{ regex = "(1)" }]  #! name: this key is missing
metrics = [{ name = "Write speed", regex = "(1)" }]  #! "Write speed" is not a valid name of a metric
metrics = [{ name = "elapsed", regex = "(1)" }]  #! elapsed
metrics = [{ name = "x", regex = "([0-9]+" }]  #! can't be a regular expression here: missing ): ([0-9]+
metrics = [{ name = "x", regex = "[0-9]+" }]  #! exactly one group, around the number
metrics = [{ name = "x", regex = "(?=a)(b)" }]  #! RE2 has no lookaround: write what stands around the number
metrics = [{ name = "x", json = "a[[" }]  #! can't be a JMESPath here
metrics = [{ name = "x", json = "a", scale = 0 }]  #! scale
metrics = [{ name = "x", json = "a", scale = inf }]  #! finite
metrics = [{ name = "x", json = "a", better = "up" }]  #! "up" is not one of 'higher', 'lower' or 'neither'
metrics = [{ name = "x", json = "a", from = "/etc/passwd" }]  #! must be a plain file name
metrics = [{ name = "x", json = "a", unit = "" }]  #! is empty
env = { "A=B" = "c" }  #! can't be an environment variable
cwd = "sub"  #! must be an absolute path

[factors.x]
old.unit = "s"
new.unit = "1/s"
[workload.load]  #! workload.load: speed has unit = "s" in one cell and "1/s" in another: levels cannot be compared
command = { argv = ["true"], metrics = [{ name = "speed", regex = "(.*)", unit = "{x.unit}" }] }
"""
)

CRASH = read(
    r"""
[crash]
moments = 0  #! 0 should be at least 1
unit = "3k"  #! "3k"
unit = 512  #! crash.unit: 512 should be in quotes: "512"
momments = 3  #! this key is unknown; did you mean 'moments'?
load = { fio = { rw = "write", size = "1M" } }  #! fio can't tell what a power cut took: write ledger, or sql-ledger

[crash]  #! no load of this study can tell what a power cut took: write load = { ledger = {} }

[crash]
load = { ledger = {} }
on   = "vm"  #! unknown nodes 'vm'; there are: host
"""
)

GUESTS = read(
    r"""
nodes.here.memory = "512M"  #! memory is for nodes of kind "vm": write kind = "vm", or leave it out
nodes.host.kind = "vm"  #! host means this machine: call other nodes something else
nodes.here = { kind = "netns", pin = "0-1" }  #! pin is for nodes of kind "vm"
nodes.vm = { kind = "vm", modules = "/lib/modules/6.12" }  #! modules goes with a kernel of your own

[nodes.vm]
kind = "vm"
memory = "64M"  #! a guest needs 128M at least to boot
memory = "129M"  #! a guest's memory is a multiple of 2M
cpus = 0  #! 0 should be at least 1
machine = "q36"  #! "q36" is not one of
pin = "every"  #! 'every' is no list of CPUs or nodes
silence = "1s"  #! a busy guest may well be silent for a second
stack = [{ layer = "directory" }, { layer = "virtio-blk" }]  #! but layer directory gives a Dir
stack = [FILE, { layer = "nvme", cache = "writeback", aio = "native" }]  #! aio =

[nodes.vm]
kind = "vm"
stack = [FILE, { layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" },
]
[workload.load]  #! takes up 128M, but the stack has 64M
fio = { rw = "write", size = "128M" }

profile = "ful"  #! unknown profile 'ful'
[profiles.full]

[parameters]
size = "1M"
[profiles.full]
sise = "1G"  #! unknown parameter 'sise'
"""
)

NETWORKS = read(
    r"""
nodes.vm.tcp.reno = true  #! this key is unknown
nodes.host = { stack = [{ layer = "directory" }], tcp = { sack = false } }  #! the nodes host are on no network among nodes, and their TCP is this machine's: leave tcp out
nodes.vm = { kind = "vm", stack = [{ layer = "directory" }], tcp = { sack = false } }  #! the nodes vm are on no network: nothing is served to them, or by them, over one

[network]  #! no node of this study is on a network: a crossing such as nbd puts them on one
delay = "1ms"

nodes.vm = { kind = "vm", count = 2 }
[network]  #! no node of this study is on a network
mtu = 9000

nodes.server = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk" }] }
nodes.client = { kind = "vm", from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }
[network]
bandwidth = "fast"  #! "fast" is not a bandwidth: write bits per second, such as "100Mbit" or "1Gbit", or "unlimited"
loss = "100%"  #! "100%" must lie between 0 % and 100 %
latency = "1ms"  #! this key is unknown

nodes.server = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk" }] }
nodes.client = { kind = "vm", from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }
[network]  #! jitter varies the delay: write delay, too
jitter = "1ms"

nodes.server = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk" }] }
nodes.client = { kind = "vm", from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }
network.mtu = "{mtu}"
factors.mtu = [1500, 90]  #! 90

[nodes.vm.tcp]  #! Linux has no FACK since 4.15, and its sysctl does nothing; RACK took its place: write recovery
fack = false

nodes.server = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk" }] }
network.mtu = "{mtu}"
factors.mtu = [1500, 9000]
nodes.client = { kind = "vm", keep = "run", from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }  #! layer nbd-export is kept for the run, but the network that it works over differs

nodes.server = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk" }] }
factors.sack = [true, false]
nodes.client = { kind = "vm", from = "server", tcp = { sack = "{sack}" }, stack = [{ layer = "nbd-export", keep = "round" }, { layer = "nbd" }] }  #! layer nbd-export is kept for a round, but the network that it works over differs from cell to cell: write keep = "trial"
"""
)

METRICS = read(
    r"""
primary = "wirte.iops"  #! primary: unknown metric 'wirte.iops'; did you mean 'write.iops'?
primary = "create.rate"  #! primary: unknown metric 'create.rate': nothing in this study yields it; `storlab list --metrics study.toml` lists what there is
primary = "write.latency.p98"  #! primary: unknown metric 'write.latency.p98'; did you mean 'write.latency.p9
primary = "write.aligned.16k"  #! primary: unknown metric 'write.aligned.16k'
primary = "probe:stalls@nowhere:stall.longest"  #! 'probe:stalls@nowhere:stall.longest' names no nodes of this study: what follows @ must be host

primary = "rate.jobs.fairness"  #! primary: unknown metric 'rate.jobs.fairness'
[workload.load]
command = { argv = ["true"], metrics = [{ name = "rate", regex = "([0-9]+)", unit = "1/s", better = "higher" }] }

primary = "stat.rate"  #! primary: unknown metric 'stat.rate'; did you mean 'create.rate'?
[workload.load]
files = { files = 10, phases = ["create"] }

primary = "latency"  #! primary: unknown metric 'latency': nothing in this study yields it
[workload.load]
command = { argv = ["true"], metrics = [{ name = "rate", regex = "([0-9]+)", unit = "1/s" }] }

factors.bs = ["4k", "64k"]
[[compare]]
factor = "bs"
metrics = ["iops",
  "bandwith",  #! compare[0].metrics[1]: unknown metric 'bandwith'; did you mean 'bandwidth'?
]
[workload.load]
fio = { rw = "write", bs = "{bs}", size = "1M" }

primary = "iops"
[factors]
bs = ["4k", "64k"]
[[compare]]
factor = "bs"
metrics = ["write.iops"]
[[compare]]
factor = "bs"
metrics = ["write.amplication"]  #! compare[1].metrics[0]: unknown metric 'write.amplication'; did you mean 'write.amplification'?
[workload.load]
fio = { rw = "write", bs = "{bs}", size = "1M" }

primary = "write.iops"  #! primary: nothing can be compared by 'write.iops'
[factors]
way = ["read", "write"]
[workload.load]
fio = { rw = "{way}", size = "1M" }
"""
)
