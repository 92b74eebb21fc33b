"""Virtual machines that can't be, their disks, and profiles."""

from . import read

MISTAKES = read(
    {
        "memory that is too little to boot": """
[nodes.vm]
kind = "vm"
memory = "64M"  #! a guest needs 128M at least to boot
""",
        "memory of an odd size": """
[nodes.vm]
kind = "vm"
memory = "129M"  #! a guest's memory is a multiple of 2M
""",
        "no CPU": """
[nodes.vm]
kind = "vm"
cpus = 0  #! 0 should be at least 1
""",
        "a machine type that is none": """
[nodes.vm]
kind = "vm"
machine = "q36"  #! "q36" is none of
""",
        "CPUs in words": """
[nodes.vm]
kind = "vm"
pin = "all"  #! 'all' is no list of CPUs or nodes
""",
        "modules without a kernel": """
[nodes.vm]  #! modules goes with a kernel of your own
kind = "vm"
modules = "/lib/modules/6.12"
""",
        "hardware of this machine": """
[nodes.here]  #! memory is for virtual machines: write kind = "vm"
memory = "512M"
""",
        "a disk of this machine": """
[nodes.here]  #! disk is for virtual machines: write kind = "vm"
disk = [{ layer = "file", size = "64M" }]
""",
        "little patience": """
[nodes.vm]
kind = "vm"
silence = "1s"  #! a busy guest may well be silent for a second
""",
        "a virtual machine called host": """
[nodes.host]
kind = "vm"  #! host means this machine: call virtual machines something else
""",
        "several nodes that others' disks are made on": """
[nodes.storage]  #! nodes of kind "auto" serve others: there is one
kind = "auto"
count = 2
""",
        "a disk on nodes that are not there": """
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }]
disk_on = "storag"  #! there are no nodes 'storag'
""",
        "a disk on several nodes": """
[nodes.storage]
kind = "vm"
count = 2
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }]
disk_on = "storage"  #! storage are several nodes; a disk is made on one
""",
        "disks on each other": """
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }]
disk_on = "vm"  #! these disks are made on each other, in a circle
""",
        "an empty disk": """
[nodes.vm]
kind = "vm"
disk = []  #! nodes.vm.disk: [] is no stack
""",
        "a disk that is no disk": """
[nodes.vm]
kind = "vm"
disk = [{ layer = "directory" }]  #! layer virtio-blk takes a File or Disk or Export, but layer directory gives a Dir
""",
        "an attachment within a machine": """
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]  #! attaches a disk to a virtual machine
[nodes.vm]
kind = "vm"
""",
        "a pool on nothing, on another node": """
[nodes.storage]
kind = "auto"
[nodes.vm]
kind = "vm"
disk = [{ layer = "zpool" }, { layer = "zvol", size = "64M" }]  #! it needs the size of the files that it makes
disk_on = "storage"
""",
        "a cache mode that native AIO can't have": """
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }, { layer = "nvme", cache = "writeback", aio = "native" }]  #! aio =
""",
        "a load that is larger than the disk": """
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[nodes.vm]
kind = "vm"
disk = [{ layer = "file", size = "64M" }]
[workload.load]  #! takes up 128M, but the stack has 64M
fio = { rw = "write", size = "128M" }
""",
        "stacks of virtual machines that are kept": """
[nodes.vm]
kind = "vm"
[trial]
keep_stacks = true  #! stacks of virtual machines can't be kept
""",
        "a profile that is not there": """
profile = "ful"  #! there is no profile 'ful'
[profiles.full]
""",
        "a profile's parameter that is not there": """
[parameters]
size = "1M"
[profiles.full]
sise = "1G"  #! there is no parameter 'sise'
""",
    }
)
