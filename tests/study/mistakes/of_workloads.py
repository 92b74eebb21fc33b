"""Workloads, fio's and commands'."""

from . import read

MISTAKES = read(
    {
        "no workload": """
[workload]  #! {} is too short: it takes at least 1
""",
        "a workload as a word": """
[workload]
load = "fio"  #! "fio" should be a table
""",
        "an empty workload": """
[workload.load]  #! ledger = { … }, sysbench = { … }, pgbench = { … }, sql-ledger = { … }, command = { … }; here
""",
        "a misspelt kind of workload": """
[workload.load]
foi = { rw = "write" }  #! unknown kind of workload 'foi'; did you mean 'fio'?
""",
        "two kinds at once": """
[workload.load]  #! a workload is one of
fio = { rw = "write" }
command = { argv = ["true"] }
""",
        "options without their kind": """
[workload.load]
rw = "write"  #! this is not a kind of workload; a workload is one of: fio = { … }
bs = "4k"
size = "1M"
""",
        "a workload name of signs": """
[workload."my load!"]  #! "my load!" is not a valid name
fio = { rw = "write" }
""",
        "a workload on nodes that are not there": """
[workload.load]
on = "vm"  #! unknown nodes 'vm'; there are: host
fio = { rw = "write" }
""",
        "a workload on a number": """
[workload.load]
on = 3  #! 3 should be the name of nodes, or a list of such names
fio = { rw = "write" }
""",
        "a workload on lists of nodes": """
[workload.load]
on = [["host"]]  #! should be the name of nodes
fio = { rw = "write" }
""",
        "a workload on no nodes": """
[workload.load]
on = []  #! [] should be the name of nodes
fio = { rw = "write" }
""",
        "fio's options as a text": """
[workload.load]
fio = "rw=write"  #! "rw=write" should be a table
""",
        "an option of fio that is a table": """
[workload.load]
fio = { rw = { read = true } }  #! should be
""",
        "an option of fio that is a date": """
[workload.load]
fio = { rw = "write", size = 2024-01-31 }  #! 2024-01-31 should be
""",
        "an option of fio that is not a number": """
[workload.load]
fio = { rw = "write", rwmixread = nan }  #! nan
""",
        "an option of fio of two lines": """
[workload.load.fio]
rw = "write"
size = "1M\\nfilename=/etc/passwd"  #! one line
""",
        "an option of fio with a strange name": """
[workload.load.fio]
rw = "write"
"size=1M\\nfilename" = "/etc/passwd"  #! is not a valid name of an option
""",
        "where fio's output goes": """
[workload.load.fio]
rw = "write"
output = "x.json"  #! workload.load.fio.output: this option is Storlab's own: leave it out
""",
        "the format of fio's output": """
[workload.load.fio]
rw = "write"
output-format = "json"  #! this option is Storlab's own
""",
        "fio's output in other spelling": """
[workload.load.fio]
rw = "write"
output_format = "json"  #! this option is Storlab's own
""",
        "a file elsewhere": """
[workload.load.fio]
rw = "write"
filename = "/dev/sda"  #! workload.load.fio.filename: "/dev/sda" leads away from the stack under test
""",
        "files of which one is elsewhere": """
[workload.load.fio]
rw = "write"
filename = "a:/dev/sda"  #! leads away from the stack under test
""",
        "files as a list of which one is elsewhere": """
[workload.load.fio]
rw = "write"
filename = ["a", "/dev/sda"]  #! leads away from the stack under test
""",
        "a file above": """
[workload.load.fio]
rw = "write"
filename = "../x"  #! leads away from the stack under test
""",
        "a file above the target": """
[workload.load.fio]
rw = "write"
filename = "{target}/../x"  #! leads away from the stack under test
""",
        "a directory elsewhere": """
[workload.load.fio]
rw = "write"
directory = "/tmp"  #! leads away from the stack under test
""",
        "names of files elsewhere": """
[workload.load.fio]
rw = "write"
filename_format = "/tmp/$jobnum"  #! leads away from the stack under test
""",
        "a replay on a disk": """
[workload.load.fio]
read_iolog = "x"
replay_redirect = "/dev/sda"  #! leads away from the stack under test
""",
        "a job's file elsewhere": """
[workload.load.fio]
rw = "write"
[workload.load.fio.jobs.one]
filename = "/dev/sda"  #! workload.load.fio.jobs.one.filename: "/dev/sda" leads away
""",
        "a job as a text": """
[workload.load.fio]
rw = "write"
jobs = { one = "rw=read" }  #! "rw=read" should be a table
""",
        "a job called global": """
[workload.load.fio]
rw = "write"
[workload.load.fio.jobs.global]  #! global
bs = "4k"
""",
        "a job with a bracket in its name": """
[workload.load.fio]
rw = "write"
[workload.load.fio.jobs."a]"]  #! "a]" is not a valid name of a job
bs = "4k"
""",
        "jobs and a job file": """
[workload.load.fio]
job_file = "x.fio"  #! jobs and job_file exclude each other
jobs = { one = { rw = "read" } }
""",
        "options and a job file": """
[workload.load.fio]
job_file = "x.fio"
rw = "read"  #! job_file
""",
        "a job file that is missing": """
[workload.load.fio]
job_file = "missing.fio"  #! workload.load.fio.job_file: cannot read missing.fio: No such file or directory
""",
        "a job file that is a folder": """
[workload.load.fio]
job_file = "."  #! cannot read .: Is a directory
""",
        "more than fits on the stack": """
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.load]  #! this takes up 256M, but the stack has 64M for it
fio = { rw = "write", size = "64M", numjobs = 4 }
""",
        "a file on a disk": """
stack = [
  { layer = "file", size = "64M" },
  { layer = "loop" },  #! the stack ends as a Disk, but
]
[workload.load]
fio = { rw = "write", size = "16M", filename = "a" }
""",
        "a relative directory": """
[workload.load.fio]
rw = "write"
directory = "sub"  #! Storlab gives fio its directory
""",
        "a job file of another kind": """
[workload.load.fio]  #! outside of [] job section
job_file = "study.toml"
""",
        "a precondition that is none": """
[trial]
precondition = { foi = { rw = "write" } }  #! trial.precondition.foi: unknown kind of workload 'foi'
""",
        "a precondition as a name": """
[trial]
precondition = "load"  #! "load" should be a table
""",
        "many files, but not how many": """
[workload.load]
files = { size = "4k" }  #! files: this key is missing
""",
        "no file at all": """
[workload.load]
files = { files = 0 }  #! 0 should be at least 1
""",
        "a misspelt key of many files": """
[workload.load.files]
files = 10
worker = 2  #! did you mean 'workers'?
""",
        "files of no size": """
[workload.load.files]
files = 10
size = "small"  #! "small" is not a size
""",
        "sizes of half a distribution": """
[workload.load.files]
files = 10
size = { min = "4k" }  #! write a size such as "4k", or { min, max }
""",
        "sizes of two distributions": """
[workload.load.files]
files = 10
size = { median = "4k", sigma = 1, choices = [{ size = "1k", weight = 1 }] }  #! exclude each other: median and sigma
""",
        "sizes the wrong way round": """
[workload.load.files]
files = 10
size = { min = "8k", max = "4k" }  #! min is above max
""",
        "a size without a weight": """
[workload.load.files]
files = 10
size = [{ size = "4k" }]  #! weight: this key is missing
""",
        "a weight of nothing": """
[workload.load.files]
files = 10
size = [{ size = "4k", weight = 0 }]  #! 0 should be more than 0
""",
        "weights whose sum is not a number": """
[workload.load.files]
files = 10
size = [{ size = "4k", weight = 1e308 }]  #! weight: 1e+308 should
""",
        "a median without sigma": """
[workload.load.files]
files = 10
size = { median = "4k" }  #! takes both median and sigma
""",
        "a phase that there is not": """
[workload.load.files]
files = 10
phases = ["create", "rename"]  #! "rename" is not one of 'create', 'read', 'stat' or 'delete'
""",
        "a phase twice": """
[workload.load.files]
files = 10
phases = ["create", "stat", "stat"]  #! the phase stat is listed twice
""",
        "files that are read after they are deleted": """
[workload.load.files]
files = 10
phases = ["create", "delete", "read"]  #! delete is the last phase: after it there are no files
""",
        "files that are made too late": """
[workload.load.files]
files = 10
phases = ["read", "create"]  #! create is the first phase: before it there are no files
""",
        "more directories than anybody wants": """
[workload.load.files]
files = 10
directories = { depth = 4, fan_out = 100 }  #! make more than 1000000 directories
""",
        "more workers than files": """
[workload.load.files]
files = 10
workers = 11  #! 11 workers for 10 files: take fewer workers
""",
        "an fsync of something else": """
[workload.load.files]
files = 10
fsync = "always"  #! "always" is not one of 'none', 'data', 'file' or 'directory'
""",
        "direct writes of odd blocks": """
[workload.load.files]
files = 10
direct = true
block_size = "6k"  #! with direct, this must be a multiple of 4k
""",
        "many files on a disk": """
stack = [{ layer = "file", size = "16M" }, { layer = "loop" }]  #! the stack ends as a Disk, but
[workload.load]
files = { files = 10 }
""",
    }
)
