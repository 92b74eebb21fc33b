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
[workload.load]  #! a workload is one of: fio = { … }, command = { … }; here are none
""",
        "a misspelt kind of workload": """
[workload.load]
foi = { rw = "write" }  #! there is no kind of workload 'foi'; did you mean 'fio'?
""",
        "two kinds at once": """
[workload.load]  #! a workload is one of
fio = { rw = "write" }
command = { argv = ["true"] }
""",
        "options without their kind": """
[workload.load]
rw = "write"  #! this is no kind of workload; a workload is one of: fio = { … }
bs = "4k"
size = "1M"
""",
        "a workload name of signs": """
[workload."my load!"]  #! "my load!" is no name
fio = { rw = "write" }
""",
        "a workload on nodes that are not there": """
[workload.load]
on = "vm"  #! there are no nodes 'vm'; there are: host
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
        "an option of fio that is no number": """
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
"size=1M\\nfilename" = "/etc/passwd"  #! is no name of an option
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
[workload.load.fio.jobs."a]"]  #! "a]" is no name of a job
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
job_file = "missing.fio"  #! workload.load.fio.job_file: missing.fio can't be read: No such file or directory
""",
        "a job file that is a folder": """
[workload.load.fio]
job_file = "."  #! can't be read: Is a directory
""",
        "a command as one text": """
[workload.load]
command = { argv = "dd if=/dev/zero" }  #! should be a list
""",
        "a command without words": """
[workload.load]
command = { argv = [] }  #! [] is too short: it takes at least 1
""",
        "a command without argv": """
[workload.load]
command = { args = ["true"] }  #! did you mean 'argv'?
""",
        "an environment of numbers": """
[workload.load]
command = { argv = ["true"], env = { THREADS = 4 } }  #! 4 should be text in quotes
""",
        "an expected time below none": """
[workload.load]
command = { argv = ["true"], expected = -5 }  #! -5 is not a duration
""",
        "a metric without a rule": """
[workload.load.command]
argv = ["true"]
metrics = [
  { name = "x" },  #! workload.load.command.metrics[0]: metric x: write either regex or json
]
""",
        "a metric with both rules": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "(1)", json = "a" }]  #! metric x: write either regex or json, one of them
""",
        "a metric without a name": """
[workload.load.command]
argv = ["true"]
metrics = [{ regex = "(1)" }]  #! name: this key is missing
""",
        "a metric of signs": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "Write speed", regex = "(1)" }]  #! "Write speed" is no name of a metric
""",
        "two metrics of one name": """
[workload.load.command]
argv = ["true"]
metrics = [
  { name = "x", regex = "(1)" },
  { name = "x", regex = "(2)" },  #! the metric x is there twice
]
""",
        "a metric that is known already": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "elapsed", regex = "(1)" }]  #! elapsed
""",
        "a metric in one table": """
[workload.load.command]
argv = ["true"]
metrics = { name = "x", regex = "(1)" }  #! should be a list
""",
        "a regex that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "([0-9]+" }]  #! missing ), unterminated subpattern
""",
        "a regex without a group": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "[0-9]+" }]  #! exactly one group, around the number
""",
        "a regex with two groups": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "([0-9]+)(k|M)" }]  #! exactly one group
""",
        "a regex that takes for ever": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", regex = "((?:a+)+)$" }]  #! repeats a repetition
""",
        "a JMESPath that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a[[" }]  #! is no JMESPath
""",
        "an empty JMESPath": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "" }]  #! is no JMESPath
""",
        "a scale of nothing": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", scale = 0 }]  #! scale
""",
        "a scale without end": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", scale = inf }]  #! finite
""",
        "a direction that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", better = "up" }]  #! "up" is none of 'higher', 'lower' or 'neither'
""",
        "a choice that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", pick = "average" }]  #! "average" is none of
""",
        "a combination that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", across = "avg" }]  #! "avg" is none of
""",
        "a source elsewhere": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", from = "/etc/passwd" }]  #! must be a plain file name
""",
        "a unit that is empty": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", unit = "" }]  #! is empty
""",
        "more than fits on the stack": """
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.load]  #! this takes up 256M, but the stack has 64M for it
fio = { rw = "write", size = "64M", numjobs = 4 }
""",
        "a file on a disk": """
stack = [
  { layer = "file", size = "64M" },
  { layer = "loop" },  #! the stack ends as a Disk, but its workload needs a Dir
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
        "an argument with a NUL": """
[workload.load.command]
argv = ["echo", "a\\u0000b"]  #! no program takes a NUL
""",
        "a program without a name": """
[workload.load.command]
argv = ["", "x"]  #! the name of a program is empty
""",
        "a variable with an equals sign": """
[workload.load.command]
argv = ["true"]
env = { "A=B" = "c" }  #! can't be an environment variable
""",
        "a relative working directory": """
[workload.load.command]
argv = ["true"]
cwd = "sub"  #! must be an absolute path
""",
        "a precondition that is none": """
[trial]
precondition = { foi = { rw = "write" } }  #! trial.precondition.foi: there is no kind of workload 'foi'
""",
        "a precondition as a name": """
[trial]
precondition = "load"  #! "load" should be a table
""",
    }
)
