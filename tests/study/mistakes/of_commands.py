"""The workload command and its metrics."""

from . import read

MISTAKES = read(
    {
        "the port of a directory": """
stack = [
  { layer = "directory" },  #! the stack ends as a Dir, but its workload needs an Export or Server
]
[workload.load]
command = { argv = ["nc", "{host}", "{port}"] }
""",
        "the database of an export": """
[workload.load]
command = { argv = ["psql", "{database}", "{export}"] }  #! nothing that a stack can end as has all of
""",
        "a file on an export": """
stack = [
  { layer = "file", size = "64M" },
  { layer = "nbd-export" },  #! the stack ends as an Export, but its workload needs a Dir or Disk
]
""",
        "preparing the port of a directory": """
[trial]
prepare = [
  ["true"],
  [
    "nc",
    "{port}",  #! trial.prepare[1][1]: the stack ends as a Dir, which has no {port}, but {target}
  ],
]
""",
        "verifying the export of a disk": """
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }]
[trial]
verify = [["qemu-nbd", "--list", "--export-name={export}"]]  #! the stack ends as a Disk, which has no {export}
""",
        "preconditioning the socket of a directory": """
stack = [
  { layer = "directory" },  #! the stack ends as a Dir, but its workload needs an Export or Server
]
[trial]
precondition = { command = { argv = ["nc", "-U", "{socket}"] } }
[workload.load]
command = { argv = ["true"] }
""",
        "a factor that has the name of a server's part": """
[factors]
database = ["mariadb", "postgresql"]  #! {database} is filled in when a trial runs: call this something else
[workload.load]
command = { argv = ["true", "{database}"] }
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
metrics = [{ name = "Write speed", regex = "(1)" }]  #! "Write speed" is not a valid name of a metric
""",
        "two metrics of one name": """
[workload.load.command]
argv = ["true"]
metrics = [
  { name = "x", regex = "(1)" },
  { name = "x", regex = "(2)" },  #! the metric x is listed twice
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
metrics = [{ name = "x", json = "a", better = "up" }]  #! "up" is not one of 'higher', 'lower' or 'neither'
""",
        "a choice that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", pick = "average" }]  #! "average" is not one of
""",
        "a combination that is none": """
[workload.load.command]
argv = ["true"]
metrics = [{ name = "x", json = "a", across = "avg" }]  #! "avg" is not one of
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
        "an argument with a NUL": """
[workload.load.command]
argv = ["echo", "a\\u0000b"]  #! it holds a NUL
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
        "a metric in the unit of its level": """
[factors.x]
old.unit = "s"
new.unit = "1/s"
[workload.load]  #! workload.load: speed has unit = "s" in one cell and "1/s" in another: levels cannot be compared
command = { argv = ["true"], metrics = [{ name = "speed", regex = "(.*)", unit = "{x.unit}" }] }
""",
    }
)
