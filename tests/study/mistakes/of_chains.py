"""Stacks that cross nodes where they can't, that outlive what they stand on, and loads on chains that are not there."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

MISTAKES = read(
    {
        "a guest's disk on this machine": """
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk" },  #! layer virtio-blk ends in a virtual machine, and the nodes host are of kind "local"
]
""",
        "a guest's disk on a node of this machine": """
[nodes.here]
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk" },  #! write kind = "vm" in [nodes.here], or leave the layer out
]
""",
        "a folder of the hypervisor in a network namespace": """
[nodes.ns]
kind = "netns"
stack = [{ layer = "directory" }, { layer = "9p" }]  #! layer 9p ends in a virtual machine, and the nodes ns are of kind "netns"
""",
        "a crossing of the network to nodes that are on none": """
[nodes.server]
kind = "netns"
stack = [{ layer = "file", size = "64M" }]
[nodes.client]
from = "server"
stack = [
  { layer = "nbd-export" },
  { layer = "nbd" },  #! layer nbd crosses a network, and the nodes client of kind "local" are on none: write kind = "netns" or "vm"
]
""",
        "a crossing of the network without from": """
[nodes.client]
kind = "vm"
stack = [
  { layer = "file", size = "64M" },
  { layer = "nbd-export" },
  { layer = "nbd" },  #! layer nbd crosses the network from other nodes: write from = "…" in [nodes.client]
]
""",
        "a crossing of the network without from, in a further chain": """
[nodes.client]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client.extra.d]
stack = [{ layer = "file", size = "64M" }, { layer = "nbd-export" }, { layer = "nbd" }]  #! write from = "…" in [nodes.client.extra.d]
""",
        "a crossing of the network from nodes that are on none": """
[nodes.server]
kind = "local"
stack = [{ layer = "file", size = "64M" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "nbd-export" }, { layer = "nbd" }]  #! layer nbd: the nodes server are on no network: write kind = "netns" or "vm" in [nodes.server]
""",
        "a folder of a virtual machine handed over by the hypervisor": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "9p" }]  #! layer 9p hands over what is on the machine that runs the virtual machines, and the nodes server are one themselves
""",
        "two crossings in one stack": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk" },
  { layer = "nbd-export" },
  { layer = "nbd" },  #! layer nbd crosses to other nodes, and so does layer virtio-blk below it: a stack crosses once
]
""",
        "an initiator above the target of another protocol": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }, { layer = "iscsi-target" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "nvme-tcp" }]  #! layer nvme-tcp: it speaks NVMe/TCP, but layer iscsi-target below it serves iSCSI: put { layer = "iscsi" } here, or { layer = "nvme-target" } below
""",
        "AoE above an NBD export": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "nbd-export" }, { layer = "aoe" }]  #! it speaks AoE, but layer nbd-export below it serves NBD: put { layer = "nbd" } here, or { layer = "aoe-target" } below
""",
        "iSCSI above a relay in front of an NBD export": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "nbd-export" }, { layer = "relay" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "iscsi" }]  #! it speaks iSCSI, but layer relay below it serves NBD: put { layer = "nbd" } here, or { layer = "iscsi-target" } below
""",
        "a disk of QEMU above an iSCSI target": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "iscsi-target" }, { layer = "virtio-blk" }]  #! QEMU opens exports of NBD alone, but layer iscsi-target below it serves iSCSI: put { layer = "nbd-export" } there, or { layer = "iscsi" } here
""",
        "several queues of a disk that has one": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "aoe-target" }, { layer = "aoe", queues = 4 }]  #! queues = 4: the driver has one queue for each disk
""",
        "a protocol that is gone from the kernel": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "dst" }]  #! layer "dst" is unsupported: it was among Linux's staging drivers for some releases, and is gone from the kernel; nbd and nvme-tcp do what it did
""",
        "crossings in the wrong order": """
[nodes.server]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [
  { layer = "nbd" },  #! layer nbd takes an Export, but layer virtio-blk gives a Disk
  { layer = "nbd-export" },
]
""",
        "a crossing on nothing": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "virtio-blk" }]  #! layer virtio-blk takes a File or Disk or Export and can't be the lowest
""",
        "a client of something that serves nobody": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "connect" }]  #! layer connect takes a Server or Export, but layer directory gives a Dir
""",
        "stacks that continue each other": """
[nodes.a]
kind = "vm"
from = "b"  #! these stacks continue each other in a circle: a, b
stack = [{ layer = "virtio-blk" }]
[nodes.b]
kind = "vm"
from = "a"
stack = [{ layer = "virtio-blk" }]
""",
        "a stack that continues itself": """
[nodes.vm]
kind = "vm"
from = "vm"  #! the stack of vm continues itself
stack = [{ layer = "virtio-blk" }]
""",
        "a further chain that continues its own nodes": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.vm.extra.d]
from = "vm"  #! the stack of vm continues itself
stack = [{ layer = "9p" }]
""",
        "nodes that nothing names": """
[nodes.storage]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.vm]
kind = "vm"
from = "storag"  #! unknown nodes "storag"; did you mean 'storage'?
stack = [{ layer = "virtio-blk" }]
""",
        "nodes that nothing names, in a further chain": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.vm.extra.d]
from = "store"  #! unknown nodes "store"; there are: host, vm
stack = [{ layer = "virtio-blk" }]
""",
        "several nodes that serve": """
[nodes.storage]
kind = "vm"
count = 2
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.vm]
kind = "vm"
from = "storage"  #! storage is a group of 2 nodes, and one node serves the others: write count = 1 in [nodes.storage]
stack = [{ layer = "virtio-blk" }]
""",
        "several nodes to be placed": """
[nodes.storage]  #! nodes with placement = "auto" serve others, and one node does that: write count = 1
kind = "vm"
placement = "auto"
count = 2
""",
        "a placement that is none": """
[nodes.storage]
kind = "vm"
placement = "here"  #! "here" is not one of 'kind' or 'auto'
""",
        "a device that would be looked for on another machine": """
[nodes.server]
kind = "vm"
stack = [
  { layer = "device", path = "/dev/vdz", wipe = "/dev/vdz" },
]
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]  #! without a crossing, /dev/vdz of the nodes server would be looked for on the nodes client
""",
        "a client without a crossing on nodes that can't have what serves it": """
[nodes.store]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.server]
kind = "vm"
from = "store"
stack = [{ layer = "nbd-export" }, { layer = "nbd" }]
[nodes.client]
from = "server"
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]  #! layer nbd crosses a network, and the nodes client of kind "local" are on none
""",
        "a mount of what is served by another protocol": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [
  { layer = "smb-share" },
  { layer = "nfs" },  #! layer nfs: it mounts what is served by nfs, and layer smb-share serves by smb: write { layer = "smb" }
]
""",
        "a mount over SSH of what is served by NFS": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [
  { layer = "nfs-export" },
  { layer = "sshfs" },  #! layer sshfs: it mounts what is served by sftp, and layer nfs-export serves by nfs: write { layer = "nfs" }
]
""",
        "a mount of a directory that nobody serves": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [
  { layer = "smb" },  #! layer smb takes a Share, but layer directory gives a Dir
]
""",
        "a version of NFS that is not served": """
[nodes.server]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.client]
kind = "vm"
from = "server"
stack = [
  { layer = "nfs-export", versions = ["3"] },
  { layer = "nfs", version = "4.1" },  #! layer nfs: version 4.1 is not served: layer nfs-export has versions = "3"
]
""",
        "a layer that is kept for longer than the one below": """
[nodes.vm]
kind = "vm"
keep = "run"
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk", keep = "trial" },
  { layer = "mkfs", type = "ext4", keep = "round" },  #! layer mkfs is kept for a round, but layer virtio-blk below it only for a trial: write keep = "round" there, too
  { layer = "mount" },
]
""",
        "a layer that is kept for longer than its nodes": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "file", size = "64M", keep = "run" },
  { layer = "virtio-blk", keep = "run" },  #! layer virtio-blk is kept for the run, but the nodes vm below it only for a trial
]
""",
        "nodes that are kept for longer than the disk that they have": """
[nodes.vm]
kind = "vm"
keep = "round"
stack = [
  { layer = "file", size = "64M", keep = "trial" },
  { layer = "virtio-blk" },  #! the nodes vm are kept for a round, but layer file, which they stand on, only for a trial: write keep = "round" there, too
]
""",
        "clients that are kept for longer than the server": """
[nodes.store]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.client]
kind = "vm"
keep = "round"
from = "store"
stack = [{ layer = "nbd-export" }, { layer = "nbd" }]  #! layer nbd-export is kept for a round, but layer virtio-blk of store below it only for a trial
""",
        "a layer of this machine that is kept for a while": """
stack = [{ layer = "file", size = "64M", keep = "ever" }, { layer = "loop" }]  #! "ever" is not one of 'trial', 'round' or 'run'
""",
        "nodes that are kept for a while": """
[nodes.vm]
kind = "vm"
keep = "rond"  #! did you mean 'round'?
""",
        "once for some": """
stack = [{ layer = "file", size = "64M", once = "perhaps" }, { layer = "loop" }]  #! "perhaps" should be true or false
""",
        "once on what each node has for itself": """
[nodes.vm]
kind = "vm"
count = 2
stack = [
  { layer = "file", size = "64M", once = false },  #! layer file with once = false is below layer nbd-export with once = true: what is set up once cannot lie on what each node has for itself
  { layer = "nbd-export", shared = 2, once = true },
  { layer = "virtio-blk" },
]
""",
        "once above the crossing": """
[nodes.vm]
kind = "vm"
count = 2
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4", once = true },  #! layer mkfs with once = true is on the nodes vm, and each of them has its own: leave once out
  { layer = "mount" },
]
""",
        "a disk of a pool that no chain gives": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "zpool", layout = "mirror", vdevs = ["disk"] },  #! layer zpool: unknown chain "disk"; there are: d
  { layer = "zfs" },
]
extra.d = { count = 2, stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }] }
""",
        "a disk of a pool below the crossing": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "zpool", layout = "mirror", vdevs = ["d"] },  #! layer zpool is set up on the machine below the crossing, and the chain d ends on the nodes vm
  { layer = "zvol", size = "32M" },
  { layer = "virtio-blk" },
]
extra.d = { count = 2, stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }] }
""",
        "a disk of a pool that is a folder": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "zpool", vdevs = ["d"] },  #! layer zpool takes disks or files, but the chain d ends as a Dir
  { layer = "zfs" },
]
extra.d = { stack = [{ layer = "directory" }, { layer = "9p" }] }
""",
        "a further chain without a stack": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
[nodes.vm.extra.d]  #! a stack is missing: write stack = [{ layer = "directory" }], or other layers
count = 2
""",
        "a further chain with an empty stack": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { stack = [] }  #! nodes.vm.extra.d.stack: [] is not a stack
""",
        "a further chain with a key of nodes": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { memory = "1G", stack = [{ layer = "directory" }] }  #! nodes.vm.extra.d.memory: this key is unknown
""",
        "a further chain as a list": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = [{ layer = "directory" }]  #! nodes.vm.extra.d: [{ layer = "directory" }] should be a table
""",
        "no further chain at all": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { count = 0, stack = [{ layer = "directory" }] }  #! 0 should be at least 1
""",
        "a name of a further chain with a dot": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra."a.b" = { stack = [{ layer = "directory" }] }  #! "a.b" is not a valid name
""",
        "a disk that is no longer a key": """
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }]  #! nodes.vm.disk: this key is unknown
""",
        "a load on a chain that is not there": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.share = { stack = [{ layer = "directory" }, { layer = "9p" }] }
[workload.load]
on = "vm:shar"  #! the nodes vm have no chain 'shar'; did you mean 'share'?
fio = { rw = "write", size = "1M" }
""",
        "a load on a chain of nodes that have none": """
[workload.load]
on = "host:share"  #! the nodes host have no chain 'share'; there are: none
fio = { rw = "write", size = "1M" }
""",
        "a load on one chain of several": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.d = { count = 2, stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }] }
[workload.load]
on = "vm:d"  #! each of the nodes vm has several chains 'd', and a load runs on one
fio = { rw = "write", size = "1M" }
""",
        "a load on two chains of a node": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.share = { stack = [{ layer = "directory" }, { layer = "9p" }] }
[workload.load]
on = ["vm", "vm:share"]  #! the load runs twice on the nodes vm: write a workload for each chain
fio = { rw = "write", size = "1M" }
""",
        "a load on the wrong kind of chain": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
extra.f = { stack = [{ layer = "file", size = "64M" }] }  #! the stack ends as a File, but its workload needs a Dir or Disk
[workload.load]
on = "vm:f"
fio = { rw = "write", size = "1M" }
""",
        "files that are neither own nor the same": """
[workload.load]
shared_files = "mine"  #! "mine" is neither "own" nor "same"
fio = { rw = "write", size = "1M" }
""",
        "a load that is larger than a disk of another node": """
[nodes.store]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
[nodes.vm]
kind = "vm"
from = "store"
stack = [{ layer = "virtio-blk" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.load]  #! takes up 128M, but the stack has 64M
fio = { rw = "write", size = "128M" }
""",
    }
)
