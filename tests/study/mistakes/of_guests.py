"""Virtual machines that can't be, what their disks are made of, and profiles."""

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
machine = "q36"  #! "q36" is not one of
""",
        "CPUs in words": """
[nodes.vm]
kind = "vm"
pin = "every"  #! 'every' is no list of CPUs or nodes
""",
        "modules without a kernel": """
[nodes.vm]  #! modules goes with a kernel of your own
kind = "vm"
modules = "/lib/modules/6.12"
""",
        "hardware of this machine": """
[nodes.here]
memory = "512M"  #! memory is for nodes of kind "vm": write kind = "vm", or leave it out
""",
        "hardware of a network namespace": """
[nodes.here]
kind = "netns"
pin = "0-1"  #! pin is for nodes of kind "vm"
""",
        "little patience": """
[nodes.vm]
kind = "vm"
silence = "1s"  #! a busy guest may well be silent for a second
""",
        "a virtual machine called host": """
[nodes.host]
kind = "vm"  #! host means this machine: call other nodes something else
""",
        "a disk that is none": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }, { layer = "virtio-blk" }]  #! but layer directory gives a Dir
""",
        "a cache mode that native AIO can't have": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "file", size = "64M" }, { layer = "nvme", cache = "writeback", aio = "native" }]  #! aio =
""",
        "a load that is larger than the disk": """
[nodes.vm]
kind = "vm"
stack = [
  { layer = "file", size = "64M" },
  { layer = "virtio-blk" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount" },
]
[workload.load]  #! takes up 128M, but the stack has 64M
fio = { rw = "write", size = "128M" }
""",
        "a profile that is not there": """
profile = "ful"  #! unknown profile 'ful'
[profiles.full]
""",
        "a profile's parameter that is not there": """
[parameters]
size = "1M"
[profiles.full]
sise = "1G"  #! unknown parameter 'sise'
""",
    }
)
