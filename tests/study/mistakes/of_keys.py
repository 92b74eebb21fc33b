"""Keys and values at the top of a study, and in its tables that need no factor."""

from . import read

MISTAKES = read(
    {
        "a misspelt key at the top": """
primry = "bandwidth"  #! primry: this key is unknown; did you mean 'primary'?
""",
        "a key that is nothing like any": """
zzz = 1  #! this key is unknown; there are: schema, title
""",
        "a table in the plural": """
[workloads.load]  #! did you mean 'workload'?
fio = { rw = "write" }
[workload.load]
fio = { rw = "write" }
""",
        "another version of the format": """
schema = 2  #! 2 should be 1
""",
        "a version in quotes": """
schema = "1"  #! "1" should be 1
""",
        "a title that is a number": """
title = 1  #! title: 1 should be text in quotes
""",
        "a title that is a date": """
title = 2024-01-31  #! title: 2024-01-31 should be text in quotes
""",
        "an empty title": """
title = ""  #! is empty: write a text
""",
        "a confidence in quotes": """
confidence = "95%"  #! "95%" should be a number
""",
        "a confidence of 95": """
confidence = 95  #! should be at most 0.9999
""",
        "a confidence that is true": """
confidence = true  #! true should be a number
""",
        "a confidence that is not a number": """
confidence = nan  #! confidence: nan should be
""",
        "a scratch folder that is relative": """
scratch = "tmp"  #! must be an absolute path
""",
        "a scratch folder with dots": """
scratch = "/var/../tmp"  #! must be an absolute path
""",
        "a precision of nothing": """
[repeat]
until = "0%"  #! is neither "decided" nor "max" nor a precision
""",
        "a precision above everything": """
[repeat]
until = "120%"  #! is neither "decided" nor "max" nor a precision
""",
        "a precision that is negative": """
[repeat]
until = "-5%"  #! is neither "decided" nor "max" nor a precision
""",
        "a precision that is a table": """
[repeat]
until = { a = 1 }  #! { a = 1 } is neither "decided" nor "max" nor a precision
""",
        "a precision that is infinite": """
[repeat]
until = inf  #! inf is neither
""",
        "rounds in quotes": """
[repeat]
min = "5"  #! "5" should be a whole number
""",
        "rounds that are true": """
[repeat]
min = true  #! true should be a whole number
""",
        "half a round": """
[repeat]
max = 2.5  #! 2.5 should be a whole number
""",
        "no rounds": """
[repeat]
min = 0  #! 0 should be at least 1
""",
        "rounds below none": """
[repeat]
min = -3  #! -3 should be at least 1
""",
        "a vast number of rounds": f"""
[repeat]
max = {"9" * 40}  #! this number should be at most 10000
""",
        "fewer rounds at most than at least": """
[repeat]  #! min = 9 is more than max = 3
min = 9
max = 3
""",
        "fewer rounds at most than at least by default": """
[repeat]  #! min = 5 is more than max = 3
max = 3
""",
        "a misspelt key of repeat": """
[repeat]
maximum = 3  #! this key is unknown
""",
        "repeat as a number": """
repeat = 5  #! 5 should be a table
""",
        "a parameter that is a date": """
[parameters]
size = 2024-01-31  #! 2024-01-31 should be
""",
        "a parameter with a space in its name": """
[parameters]
"the size" = 1  #! "the size" is not a valid name
""",
        "a parameter with a dot in its name": """
[parameters]
"a.b" = 1  #! "a.b" is not a valid name
""",
        "a parameter that Storlab fills in": """
[parameters]
target = "x"  #! {target} is filled in when a trial runs
""",
        "a parameter that contains itself": """
[parameters]
size = "{size}"  #! {size} contains itself: size → size
[workload.load]
fio = { rw = "write", size = "{size}" }
""",
        "parameters in a circle": """
[parameters]
a = "{b}x"
b = "{a}x"  #! {a} contains itself: a → b → a
[workload.load]
fio = { rw = "write", size = "{a}" }
""",
        "a time-out of nothing": """
[trial]
timeout = "0s"  #! longer than 0 s
""",
        "a time-out that is negative": """
[trial]
timeout = "-10s"  #! "-10s" is not a duration
""",
        "a time-out without a unit": """
[trial]
timeout = "10"  #! "10" is not a duration: write a number with ms, s, m or h
""",
        "a time-out of a thousand years": """
[trial]
timeout = "365000d"  #! longer than a year
""",
        "a time-out that never ends": """
[trial]
timeout = inf  #! longer than a year
""",
        "a warm-up that is not a number": """
[trial]
warm_up = nan  #! nan is not a duration
""",
        "a misspelt key of a trial": """
[trial]
warmup = "1s"  #! did you mean 'warm_up'?
""",
        "a misspelt key of settle": """
[trial]
settle = { drop_cache = true }  #! did you mean 'drop_caches'?
""",
        "settle as a word": """
[trial]
settle = "sync"  #! "sync" should be a table
""",
        "a switch that is neither": """
[trial]
settle = { sync = "perhaps" }  #! "perhaps" should be true or false
""",
        "a command as one text": """
[trial]
prepare = ["sync -f ."]  #! "sync -f ." should be a list
""",
        "commands as one text": """
[trial]
verify = "true"  #! "true" should be a list
""",
        "a load that verifies nothing": """
[trial]
verify = { fio = { rw = "read", size = "1M" } }  #! fio is a load, which finds nothing wrong: write commands, or posix
""",
        "a check of checks that are not there": """
[trial]
verify = { posix = { checks = ["fsnyc"] } }  #! unknown check; there are rename-over-open
""",
        "a check after a load that has no directory": """
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }]  #! needs a Dir
[trial]
verify = "posix"
[workload.load]
fio = { rw = "write", size = "1M" }
""",
        "a load with the name of the check": """
[trial]
verify = "posix"
[workload.verify]  #! the check of [trial] verify has this name: give the load another
fio = { rw = "write", size = "1M" }
""",
        "a command without words": """
[trial]
prepare = [[]]  #! [] is too short
""",
        "a command with a number": """
[trial]
prepare = [["sleep", 1]]  #! 1 should be text in quotes
""",
        "a workload that is not there": """
[trial]
workloads = ["laod"]  #! unknown workload 'laod'; did you mean 'load'?
[workload.load]
fio = { rw = "write", size = "1M" }
""",
        "no workload chosen": """
[trial]
workloads = []  #! at least one workload
""",
        "a workload twice": """
[trial]
workloads = ["load", "load"]  #! is listed twice
[workload.load]
fio = { rw = "write", size = "1M" }
""",
        "workloads as one text": """
[trial]
workloads = "load"  #! "load" should be a list
""",
        "a time-out for levels of no factor": """
[trial]
timeouts = [{ where = { fs = "xfs" }, timeout = "1h" }]  #! unknown factor 'fs'
""",
        "a time-out rule without a time": """
[trial]
timeouts = [{ where = {} }]  #! timeouts[0].timeout: this key is missing
""",
        "an unknown probe": """
[probes]
hostload = {}  #! did you mean 'host-load'?
""",
        "an unknown key of a probe": """
[probes]
stalls = { treshold = "1s" }  #! did you mean 'threshold'?
""",
        "a probe that is switched on": """
[probes]
stalls = true  #! true should be a table
""",
        "a probe's absurd duration": """
[probes]
stalls = { threshold = "1 fortnight" }  #! is not a duration
""",
        "an unknown kind of node": """
[nodes.vm]
kind = "vmm"  #! unknown kind of node "vmm"; did you mean 'vm'?
""",
        "a kind of node that is like none": """
[nodes.far]
kind = "mainframe"  #! unknown kind of node "mainframe"; there are: local, netns, vm
""",
        "a kind of node that is a number": """
[nodes.far]
kind = 1  #! unknown kind of node 1; there are: local, netns, vm
""",
        "a set-up that may take no time": """
[trial]
setup_timeout = 0  #! longer than 0 s
""",
        "a negative number of nodes": """
[nodes.many]
count = -1  #! -1 should be at least 1
""",
        "far too many nodes": """
[nodes.many]
count = 100000  #! should be at most 256
""",
        "several hosts": """
[nodes.host]
count = 2  #! host means this machine, once
""",
        "nodes as a number": """
nodes = 4  #! 4 should be a table
""",
        "a group of nodes as a number": """
[nodes]
vm = 4  #! 4 should be a table
""",
        "a misspelt key of nodes": """
[nodes.vm]
cont = 2  #! did you mean 'count'?
""",
        "nodes with a name of signs": """
[nodes."a b"]  #! "a b" is not a valid name
count = 1
""",
        "a stack of nodes that is empty": """
[nodes.vm]
stack = []  #! nodes.vm.stack: [] is not a stack
""",
    }
)
