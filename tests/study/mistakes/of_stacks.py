"""Stacks that can't be set up anywhere."""

from . import read

MISTAKES = read(
    {
        "no stack": """
[stack]  #! {} is not a layer
""",
        "an empty stack": """
stack = []  #! [] is not a stack
""",
        "a stack as a word": """
stack = "directory"  #! "directory" is not a stack: write a list of one or more layers
""",
        "a stack as a number": """
stack = 5  #! 5 is not a stack
""",
        "a stack as a date": """
stack = [2024-01-31]  #! 2024-01-31 is not a layer
""",
        "a layer as a word": """
stack = ["directory"]  #! "directory" is not a layer: write { layer = "…" }
""",
        "a list within the stack": """
stack = [[{ layer = "directory" }]]  #! is not a layer
""",
        "a layer that does not say which": """
stack = [{ type = "ext4" }]  #! { type = "ext4" } is not a layer
""",
        "a mount of another device": """
stack = [
  { layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" },
  { layer = "mount", options = "noatime,logdev=/dev/sdb1" },  #! logdev=/dev/sdb1 is about another
]
""",
        "an option by which ssh runs a program": """
stack = [{ layer = "sshfs", options = ["ssh_command=reboot"] }]  #! ssh_command=reboot is no option without a value
""",
        "a layer with a misspelt key for its name": """
stack = [{ kind = "directory" }]  #! is not a layer: write { layer = "…" }
""",
        "a misspelt layer": """
stack = [{ layer = "directry" }]  #! did you mean 'directory'?
""",
        "a layer in capitals": """
stack = [{ layer = "Directory" }]  #! did you mean 'directory'?
""",
        "a layer that is a list": """
stack = [{ layer = ["directory"] }]  #! unknown layer ["directory"]
""",
        "a layer that is a number": """
stack = [{ layer = 7 }]  #! unknown layer 7; there are: directory, file
""",
        "a misspelt key of a layer": """
stack = [
  { layer = "file", sise = "1G", size = "1G" },  #! stack[0].sise: this key is unknown; did you mean 'size'?
  { layer = "loop" },
]
""",
        "a key of another layer": """
stack = [{ layer = "directory", size = "1G" }]  #! stack[0].size: this key is unknown
""",
        "the lowest layer needs one below": """
stack = [{ layer = "loop" }]  #! layer loop takes a File and can't be the lowest
""",
        "mkfs as the lowest": """
stack = [{ layer = "mkfs", type = "ext4" }, { layer = "mount" }]  #! layer mkfs takes a Disk
""",
        "mkfs on a file": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "mkfs", type = "ext4" },  #! layer mkfs takes a Disk, but layer file gives a File
  { layer = "mount" },
]
""",
        "mount on a file": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "mount" },  #! layer mount takes a Disk, but layer file gives a File
]
""",
        "mount without mkfs": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mount" },  #! there is no file system below it to mount
]
""",
        "loop on a disk": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "loop" },  #! layer loop takes a File, but layer loop gives a Disk
]
""",
        "a device in the middle": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "device", path = "/dev/vdz" },  #! layer device takes nothing, so it must be the lowest
]
""",
        "a directory on a disk": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "directory" },  #! layer directory takes nothing
]
""",
        "two stacks in one": """
stack = [
  { layer = "directory" },
  { layer = "mount" },  #! layer mount takes a Disk, but layer directory gives a Dir
]
""",
        "a stack that ends in a file": """
stack = [{ layer = "file", size = "1G" }]  #! the stack ends as a File, but its workload needs a Dir or Disk
""",
        "a file without a size": """
stack = [{ layer = "file" }, { layer = "loop" }]  #! it needs a size
""",
        "a negative size": """
stack = [{ layer = "file", size = -1 }, { layer = "loop" }]  #! -1 is not a size: it is negative
""",
        "a negative size in quotes": """
stack = [{ layer = "file", size = "-1G" }, { layer = "loop" }]  #! "-1G" is not a size
""",
        "a size in words": """
stack = [{ layer = "file", size = "big" }, { layer = "loop" }]  #! such as "4k"
""",
        "a size with a comma": """
stack = [{ layer = "file", size = "1,5G" }, { layer = "loop" }]  #! "1,5G" is not a size
""",
        "a size of half a byte": """
stack = [{ layer = "file", size = "0.5" }, { layer = "loop" }]  #! is not a whole number of bytes
""",
        "a size that no file has": """
stack = [{ layer = "file", size = "90000P" }, { layer = "loop" }]  #! Linux knows none above 8 EiB
""",
        "a size of many digits": f"""
stack = [{{ layer = "file", size = "{"9" * 400}G" }}, {{ layer = "loop" }}]  #! is not a size
""",
        "a size with a fraction": """
stack = [{ layer = "file", size = 1.5 }, { layer = "loop" }]  #! 1.5 is not a size
""",
        "a size that is true": """
stack = [{ layer = "file", size = true }, { layer = "loop" }]  #! true is not a size
""",
        "a size in Arabic digits": """
stack = [{ layer = "file", size = "٤k" }, { layer = "loop" }]  #! is not a size
""",
        "an allocation that is misspelt": """
stack = [{ layer = "file", size = "1G", allocate = "spars" }, { layer = "loop" }]  #! did you mean 'sparse'?
""",
        "overcommit of what is written": """
stack = [{ layer = "file", size = "1G", allocate = "written", overcommit = true }]  #! for sparse files only
""",
        "a sector size that is no power of two": """
stack = [{ layer = "file", size = "1G" }, { layer = "loop", sector_size = 520 }]  #! 520 is no sector size
""",
        "a file system that is not there": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "ext5" },  #! "ext5" is not one of 'ext4', 'xfs' or 'btrfs'; did you mean 'ext4'?
  { layer = "mount" },
]
""",
        "mkfs of nothing": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs" },  #! stack[2].type: this key is missing
  { layer = "mount" },
]
""",
        "an option of another file system": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "ext4", reflink = true },  #! reflink is an option of xfs, not of ext4
  { layer = "mount" },
]
""",
        "features as a text": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "ext4", features = "^64bit" },  #! "^64bit" should be a list
  { layer = "mount" },
]
""",
        "mount options as a table": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "ext4" },
  { layer = "mount", options = { noatime = true } },  #! should be a list
]
""",
        "a device without a path": """
stack = [{ layer = "device" }]  #! stack[0].path: this key is missing
""",
        "a word that nothing defines": """
stack = [{ layer = "directory" }, "{fs}"]  #! unknown factor or parameter {fs}
""",
        "a misspelt word": """
stack = ["{dri}"]  #! unknown factor or parameter {dri}; did you mean 'dir'?
[factors.dir]
here = { layer = "directory" }
""",
        "a word that is known too late": """
stack = [{ layer = "directory", path = "{target}/x" }]  #! {target} is known only while a trial runs
""",
        "a stack within a text": """
stack = [{ layer = "directory", path = "/srv/{dir}" }]  #! {dir} is a table here: it can't be put into a longer text
[factors.dir]
here = { layer = "directory" }
""",
        "layers of one level that don't meet": """
stack = ["{disk}", { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
[factors.disk]
loop = [{ layer = "file", size = "64M" }, { layer = "loop" }]
plain = [
  { layer = "file", size = "64M" },
  { layer = "mount" },  #! factors.disk.plain[1]: layer mount takes a Disk, but layer file gives a File
]
""",
        "a misspelt key in one level": """
stack = ["{dir}"]
[factors.dir]
here = { layer = "directory" }
there = { layer = "directory", pat = "/srv" }  #! factors.dir.there.pat: this key is unknown; did you mean 'path'?
""",
        "a level that is not a layer": """
stack = ["{dir}"]
[factors.dir]
levels = ["here"]  #! factors.dir.levels[0]: "here" is not a layer
""",
        "a key of a level that has none": """
stack = [{ layer = "directory", path = "{dir.path}" }]  #! {dir.path}: dir is "/srv" here, which is not a table
[factors.dir]
levels = ["/srv"]
""",
        "a misspelt key of a level": """
stack = [{ layer = "directory", path = "{dir.pat}" }]  #! which has no key 'pat'; did you mean 'path'?
[factors.dir]
here = { path = "/srv" }
""",
        "pages that InnoDB has not": """
stack = [{ layer = "directory" }, { layer = "mysql", page_size = "12k" }]  #! 4k, 8k, 16k, 32k and 64k
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
        "a redo log that is too small for MySQL": """
stack = [{ layer = "directory" }, { layer = "mysql", log_size = "4M" }]  #! log_size
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
        "a setting that says where MySQL's files are": """
stack = [{ layer = "directory" }, { layer = "mysql", settings = { datadir = "x" } }]  #! Storlab says where
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
        "databases that are compared and get their data in two ways": """
stack = [{ layer = "directory" }, "{server}"]
[factors.server]
one = { layer = "mariadb" }
other = { layer = "mariadb", doublewrite = false, clone = "reflink" }  #! clone = "copy" and "reflink", and
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
        "databases on ZFS whose data are cloned, compared with one that gets a copy": """
stack = [{ layer = "zpool", size = "1G" }, { layer = "zfs" }, "{server}"]
[factors.server]
one = { layer = "mariadb", clone = "zfs" }  #! clone = "copy" and "zfs", and
other = { layer = "mariadb", doublewrite = false }
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
        "a clone of ZFS on a file system that is none": """
stack = [
  { layer = "file", size = "1G" },
  { layer = "loop" },
  { layer = "mkfs", type = "xfs" },
  { layer = "mount" },
  { layer = "mariadb", clone = "zfs" },  #! clone = "zfs" takes a dataset right below it: put layer zfs there
]
[workload.load]
sysbench = { tables = 1, rows = 10 }
""",
    }
)
