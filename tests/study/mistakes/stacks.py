"""Stacks that cannot be set up anywhere, and those that cross nodes where they cannot."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

STACKS = read(
    r"""
[stack]  #! {} is not a layer
stack = []  #! [] is not a stack
stack = "directory"  #! "directory" is not a stack: write a list of one or more layers
stack = ["directory"]  #! "directory" is not a layer: write { layer = "…" }
stack = [{ type = "ext4" }]  #! { type = "ext4" } is not a layer
stack = [{ layer = "sshfs", options = ["ssh_command=reboot"] }]  #! ssh_command=reboot is no option without a value
stack = [{ layer = "directry" }]  #! did you mean 'directory'?
stack = [{ layer = "directory", size = "64M" }]  #! stack[0].size: this key is unknown
stack = [{ layer = "loop" }]  #! layer loop takes a File and can't be the lowest
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]  #! layer mkfs takes a Disk
stack = [FILE]  #! the stack ends as a File, but its workload needs a Dir or Disk
stack = [{ layer = "file" }, { layer = "loop" }]  #! it needs a size
stack = [{ layer = "file", size = -1 }, { layer = "loop" }]  #! -1 is not a size: it is negative
stack = [{ layer = "file", size = "90000P" }, { layer = "loop" }]  #! Linux knows none above 8 EiB
stack = [{ layer = "file", size = "64M", allocate = "spars" }, { layer = "loop" }]  #! did you mean 'sparse'?
stack = [{ layer = "file", size = "64M", allocate = "written", overcommit = true }]  #! for sparse files only
stack = [FILE, { layer = "loop", sector_size = 520 }]  #! 520 is no sector size
stack = [{ layer = "device" }]  #! stack[0].path: this key is missing
stack = [{ layer = "directory" }, "{fs}"]  #! unknown factor or parameter {fs}
stack = [{ layer = "directory", path = "{target}/x" }]  #! {target} is known only while a trial runs

stack = [FILE, { layer = "loop" }, { layer = "mkfs", type = "xfs" },
  { layer = "mount", options = "noatime,logdev=/dev/sdb1" },  #! logdev=/dev/sdb1 is about another
]

stack = [
  { layer = "file", sise = "64M", size = "64M" },  #! stack[0].sise: this key is unknown; did you mean 'size'?
  { layer = "loop" }]

stack = [FILE, { layer = "loop" },
  { layer = "mkfs", type = "ext4", blok_size = "{bs}" },  #! stack[2].blok_size: this key is unknown; did you mean 'block_size'?
  { layer = "mount" }]
factors.bs = ["1k", "4k"]

stack = [FILE,
  { layer = "mkfs", type = "ext4" },  #! layer mkfs takes a Disk, but layer file gives a File
  { layer = "mount" }]

stack = [FILE,
  { layer = "mount" },  #! layer mount takes a Disk, but layer file gives a File
  { layer = "device", path = "/dev/vdz" },  #! layer device takes nothing, so it must be the lowest
]

stack = [FILE, { layer = "loop" },
  { layer = "mount" },  #! there is no file system below it to mount
  { layer = "loop" },  #! layer loop takes a File, but layer loop gives a Disk
  { layer = "directory" },  #! layer directory takes nothing
]

stack = [{ layer = "directory" },
  { layer = "mount" },  #! layer mount takes a Disk, but layer directory gives a Dir
]

stack = [FILE, { layer = "loop" },
  { layer = "mkfs", type = "ext5" },  #! "ext5" is not one of 'ext4', 'xfs' or 'btrfs'; did you mean 'ext4'?
  { layer = "mkfs" },  #! stack[2].type: this key is missing
  { layer = "mkfs", type = "ext4", reflink = true },  #! reflink is an option of xfs, not of ext4
  { layer = "mkfs", type = "ext4", features = "^64bit" },  #! "^64bit" should be a list
  { layer = "mount" }]

stack = [FILE, { layer = "loop" }, { layer = "mkfs", type = "ext4" },
  { layer = "mount", options = { noatime = true } },  #! should be a list
]

stack = ["{dri}"]  #! unknown factor or parameter {dri}; did you mean 'dir'?
stack = [{ layer = "directory", path = "/srv/{dir}" }]  #! {dir} is a table here: it can't be put into a longer text
[factors.dir]
here = { layer = "directory" }

stack = ["{disk}", { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
factors.disk = { loop = [FILE, { layer = "loop" }], plain = [FILE, { layer = "mount" }] }  #! factors.disk.plain[1]: layer mount takes a Disk, but layer file gives a File

stack = ["{dir}"]
factors.dir = { here = { layer = "directory" }, there = { layer = "directory", pat = "/srv" } }  #! factors.dir.there.pat: this key is unknown; did you mean 'path'?

stack = ["{dir}"]
[factors.dir]
levels = ["here"]  #! factors.dir.levels[0]: "here" is not a layer

stack = [{ layer = "directory", path = "{dir.path}" }]  #! {dir.path}: dir is "/srv" here, which is not a table
[factors.dir]
levels = ["/srv"]

stack = [{ layer = "directory", path = "{dir.pat}" }]  #! which has no key 'pat'; did you mean 'path'?
[factors.dir]
here = { path = "/srv" }

stack = [{ layer = "directory" }, { layer = "mysql", page_size = "12k" }]  #! 4k, 8k, 16k, 32k and 64k
stack = [{ layer = "directory" }, { layer = "mysql", log_size = "4M" }]  #! log_size
stack = [{ layer = "directory" }, { layer = "mysql", settings = { datadir = "x" } }]  #! Storlab says where
[workload.load]
sysbench = { tables = 1, rows = 10 }

stack = [{ layer = "directory" }, "{server}"]
[factors.server]
one = { layer = "mariadb" }
other = { layer = "mariadb", doublewrite = false, clone = "reflink" }  #! clone = "copy" and "reflink", and
[workload.load]
sysbench = { tables = 1, rows = 10 }

stack = [{ layer = "zpool", size = "64M" }, { layer = "zfs" }, "{server}"]
[factors.server]
one = { layer = "mariadb", clone = "zfs" }  #! clone = "copy" and "zfs", and
other = { layer = "mariadb", doublewrite = false }
[workload.load]
sysbench = { tables = 1, rows = 10 }

stack = [FILE, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" },
  { layer = "mariadb", clone = "zfs" },  #! clone = "zfs" takes a dataset right below it: put layer zfs there
]
[workload.load]
sysbench = { tables = 1, rows = 10 }
"""
)
STACKS += read(f'stack = [{{ layer = "file", size = "{"9" * 400}G" }}, {{ layer = "loop" }}]  #! is not a size')

CHAINS = read(
    r"""
stack = [FILE,
  { layer = "virtio-blk" },  #! layer virtio-blk ends in a virtual machine, and the nodes host are of kind "local"
]

nodes.ns = { kind = "netns", stack = [{ layer = "directory" }, { layer = "9p" }] }  #! layer 9p ends in a virtual machine, and the nodes ns are of kind "netns"
nodes.storage = { kind = "vm", placement = "here" }  #! "here" is not one of 'kind' or 'auto'
stack = [{ layer = "file", size = "64M", keep = "ever" }, { layer = "loop" }]  #! "ever" is not one of 'trial', 'round' or 'run'
stack = [{ layer = "file", size = "64M", once = "perhaps" }, { layer = "loop" }]  #! "perhaps" should be true or false
nodes.vm = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }, { layer = "root" }] }  #! layer root: the disk below it holds no system: give its layer base = { system = true, size = "4G" }
nodes.vm = { kind = "vm", stack = [{ layer = "image-copy", base = { system = true, size = "2G" } }, { layer = "nvme" }, { layer = "root" }] }  #! layer root: a virtual machine boots from a disk of virtio-blk
nodes.vm = { kind = "vm", stack = [{ layer = "directory" }], extra.d = { stack = [{ layer = "image-copy", base = { system = true, size = "2G" } }, { layer = "virtio-blk" }, { layer = "root" }] } }  #! layer root: a machine has one root, in its own stack
nodes.vm = { kind = "vm", stack = [{ layer = "image-copy", base = { system = true, size = "1G" } }, { layer = "virtio-blk" }, { layer = "root" }] }  #! system = true goes with a size of 2G or more
nodes.here.stack = [FILE, { layer = "virtio-blk" }]  #! write kind = "vm" in [nodes.here], or leave the layer out
nodes.storage = { kind = "vm", placement = "auto", count = 2 }  #! nodes with placement = "auto" serve others, and one node does that: write count = 1
nodes.vm = { kind = "vm", keep = "run", stack = [FILE, { layer = "virtio-blk", keep = "trial" }, { layer = "mkfs", type = "ext4", keep = "round" }, { layer = "mount" }] }  #! layer mkfs is kept for a round, but layer virtio-blk below it only for a trial: write keep = "round" there, too
nodes.vm = { kind = "vm", keep = "round", stack = [{ layer = "file", size = "64M", keep = "trial" }, { layer = "virtio-blk" }] }  #! the nodes vm are kept for a round, but layer file, which they stand on, only for a trial: write keep = "round" there, too
nodes.vm = { kind = "vm", count = 2, stack = [{ layer = "file", size = "64M", once = false }, { layer = "nbd-export", shared = 2, once = true }, { layer = "virtio-blk" }] }  #! layer file with once = false is below layer nbd-export with once = true: what is set up once cannot lie on what each node has for itself
nodes.vm = { kind = "vm", count = 2, stack = [FILE, { layer = "virtio-blk" }, { layer = "mkfs", type = "ext4", once = true }, { layer = "mount" }] }  #! layer mkfs with once = true is on the nodes vm, and each of them has its own: leave once out
nodes.vm = { kind = "vm", stack = [{ layer = "zpool", layout = "mirror", vdevs = ["d"] }, { layer = "zvol", size = "32M" }, { layer = "virtio-blk" }], extra.d = { count = 2, stack = [FILE, { layer = "virtio-blk" }] } }  #! layer zpool is set up on the machine below the crossing, and the chain d ends on the nodes vm
workload.load = { on = "host:share", fio = { rw = "write", size = "1M" } }  #! the nodes host have no chain 'share'; there are: none

nodes.server = { kind = "netns", stack = [FILE] }
nodes.client = { from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }  #! layer nbd: the nodes server are on the run's own network, which nothing outside of it reaches: put the nodes client on it, too (kind = "netns" or "vm"), or serve from a machine

nodes.server = { kind = "local", stack = [FILE] }
nodes.client = { kind = "vm", from = "server", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }  #! layer nbd: the nodes server are on no network: write kind = "netns" or "vm" in [nodes.server], or address = …, where others reach this machine

[nodes.vm]
kind = "vm"
stack = [FILE, { layer = "nbd-export" }, { layer = "nbd" }]  #! layer nbd crosses the network from other nodes: write from = "…" in [nodes.vm]
stack = [FILE, { layer = "virtio-blk" }, { layer = "nbd-export" }, { layer = "nbd" }]  #! layer nbd crosses to other nodes, and so does layer virtio-blk below it: a stack crosses once
stack = [{ layer = "virtio-blk" }]  #! layer virtio-blk takes a File or Disk or Export and can't be the lowest
stack = [{ layer = "file", size = "64M", keep = "run" }, { layer = "virtio-blk", keep = "run" }]  #! layer virtio-blk is kept for the run, but the nodes vm below it only for a trial
keep = "rond"  #! did you mean 'round'?
disk = [FILE]  #! nodes.vm.disk: this key is unknown

nodes.server = { kind = "vm", stack = [{ layer = "directory" }] }
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "9p" }]  #! layer 9p hands over what is on the machine that runs the virtual machines, and the nodes server are one themselves
stack = [{ layer = "connect" }]  #! layer connect takes a Server or Export, but layer directory gives a Dir
stack = [{ layer = "smb" }]  #! layer smb takes a Share, but layer directory gives a Dir
stack = [{ layer = "smb-share" }, { layer = "nfs" }]  #! layer nfs: it mounts what is served by nfs, and layer smb-share serves by smb: write { layer = "smb" }
stack = [{ layer = "nfs-export" }, { layer = "sshfs" }]  #! layer sshfs: it mounts what is served by sftp, and layer nfs-export serves by nfs: write { layer = "nfs" }
stack = [{ layer = "nfs-export", versions = ["3"] }, { layer = "nfs", version = "4.1" }]  #! layer nfs: version 4.1 is not served: layer nfs-export has versions = "3"

nodes.server = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }] }
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "iscsi-target" }, { layer = "nvme-tcp" }]  #! layer nvme-tcp: it speaks NVMe/TCP, but layer iscsi-target below it serves iSCSI: put { layer = "iscsi" } here, or { layer = "nvme-target" } below
stack = [{ layer = "nbd-export" }, { layer = "aoe" }]  #! it speaks AoE, but layer nbd-export below it serves NBD: put { layer = "nbd" } here, or { layer = "aoe-target" } below
stack = [{ layer = "nbd-export" }, { layer = "relay" }, { layer = "iscsi" }]  #! it speaks iSCSI, but layer relay below it serves NBD: put { layer = "nbd" } here, or { layer = "iscsi-target" } below
stack = [{ layer = "iscsi-target" }, { layer = "virtio-blk" }]  #! QEMU opens exports of NBD alone, but layer iscsi-target below it serves iSCSI: put { layer = "nbd-export" } there, or { layer = "iscsi" } here
stack = [{ layer = "aoe-target" }, { layer = "aoe", queues = 4 }]  #! queues = 4: the driver has one queue for each disk
stack = [{ layer = "dst" }]  #! layer "dst" is unsupported: it was among Linux's staging drivers for some releases, and is gone from the kernel; nbd and nvme-tcp do what it did
stack = [{ layer = "nbd" }, { layer = "nbd-export" }]  #! layer nbd takes an Export, but layer virtio-blk gives a Disk

nodes.store = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }] }
[nodes.vm]
kind = "vm"
from = "storr"  #! unknown nodes "storr"; did you mean 'store'?
from = "vm"  #! the stack of vm continues itself
stack = [{ layer = "virtio-blk" }]

[nodes.a]
kind = "vm"
from = "b"  #! these stacks continue each other in a circle: a, b
stack = [{ layer = "virtio-blk" }]
[nodes.b]
kind = "vm"
from = "a"
stack = [{ layer = "virtio-blk" }]

nodes.storage = { kind = "vm", count = 2, stack = [FILE, { layer = "virtio-blk" }] }
nodes.vm = { kind = "vm", from = "storage", stack = [{ layer = "virtio-blk" }] }  #! storage is a group of 2 nodes, and one node serves the others: write count = 1 in [nodes.storage]

nodes.server = { kind = "vm", stack = [{ layer = "device", path = "/dev/vdz", wipe = "/dev/vdz" }] }
nodes.client = { kind = "vm", from = "server", stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }] }  #! without a crossing, /dev/vdz of the nodes server would be looked for on the nodes client

nodes.store = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }] }
nodes.server = { kind = "vm", from = "store", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }
nodes.client = { from = "server", stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }] }  #! layer nbd of the nodes server: the nodes store are on the run's own network, which nothing outside of it reaches

nodes.store = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }] }
nodes.client = { kind = "vm", keep = "round", from = "store", stack = [{ layer = "nbd-export" }, { layer = "nbd" }] }  #! layer nbd-export is kept for a round, but layer virtio-blk of store below it only for a trial

[nodes.vm]
kind = "vm"
stack = [
  { layer = "zpool", layout = "mirror", vdevs = ["disk"] },  #! layer zpool: unknown chain "disk"; there are: d, f
  { layer = "zpool", vdevs = ["f"] },  #! layer zpool takes disks or files, but the chain f ends as a Dir
  { layer = "zfs" }]
extra.d = { count = 2, stack = [FILE, { layer = "virtio-blk" }] }
extra.f = { stack = [{ layer = "directory" }, { layer = "9p" }] }

[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { stack = [FILE, { layer = "nbd-export" }, { layer = "nbd" }] }  #! write from = "…" in [nodes.vm.extra.d]
extra.d = { from = "vm", stack = [{ layer = "9p" }] }  #! the stack of vm continues itself
extra.d = { from = "store", stack = [{ layer = "virtio-blk" }] }  #! unknown nodes "store"; there are: host, vm
extra.d = { count = 2 }  #! a stack is missing: write stack = [{ layer = "directory" }], or other layers
extra.d = { stack = [] }  #! nodes.vm.extra.d.stack: [] is not a stack
extra.d = { memory = "1G", stack = [{ layer = "directory" }] }  #! nodes.vm.extra.d.memory: this key is unknown
extra.d = [{ layer = "directory" }]  #! nodes.vm.extra.d: [{ layer = "directory" }] should be a table
extra.d = { count = 0, stack = [{ layer = "directory" }] }  #! 0 should be at least 1
extra."a.b" = { stack = [{ layer = "directory" }] }  #! "a.b" is not a valid name

[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { count = 2, stack = [FILE, { layer = "virtio-blk" }] }
extra.share = { stack = [{ layer = "directory" }, { layer = "9p" }] }
[workload.load]
on = "vm:shar"  #! the nodes vm have no chain 'shar'; did you mean 'share'?
on = ["vm", "vm:share"]  #! the load runs twice on the nodes vm: write a workload for each chain
on = "vm:d"  #! each of the nodes vm has several chains 'd', and a load runs on one
shared_files = "mine"  #! "mine" is neither "own" nor "same"
fio = { rw = "write", size = "1M" }

[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.f = { stack = [FILE] }  #! the stack ends as a File, but its workload needs a Dir or Disk
[workload.load]
on = "vm:f"
fio = { rw = "write", size = "1M" }

nodes.store = { kind = "vm", stack = [FILE, { layer = "virtio-blk" }] }
nodes.vm = { kind = "vm", from = "store", stack = [{ layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }] }
[workload.load]  #! takes up 128M, but the stack has 64M
fio = { rw = "write", size = "128M" }
"""
)
