"""Not TOML; and keys, factors and claims that cannot be."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

TOML = read(
    r"""
primary = bandwidth  #! text must be in quotes: "bandwidth"
title: "A study"  #! TOML writes key = value, not key: value
primary =  #! invalid value
primary  #! write key = value
primary = "bandwidth  #! a text in quotes ends on the line where it begins
description = 2024-13-45  #! this is not TOML
primary = "bandwidth" title = "x"  #! expected newline
// what this is about  #! a comment begins with #
; what this is about  #! a comment begins with #
description = "C:\data"  #! write two, or the text in single quotes
parameters.size = 64M  #! text must be in quotes: "64M"
workload.load.fio = { rw = randwrite, bs = "4k" }  #! text must be in quotes: "randwrite"
workload.load.fio = { rw = "write", bs = "4k", }  #! no comma before the closing brace
factors.bs.levels = ["4k", 64k]  #! text must be in quotes: "64k"
factors.bs.levels = ["4k" "64k"]  #! is a comma or a bracket missing?
trial.settle.sync = True  #! write true or false
repeat.min = 05  #! this is not TOML

[workload.load]
fio = { rw = "write",  #! a table in braces { … } must be on one line
        bs = "4k" }

[repeat  #! expected ']'
max = 3

primary = "bandwidth"
primary = "iops"  #! the same key or [table] is defined already

[repeat]
min = 2
[repeat]  #! the same key or [table] is defined already
max = 3

[workload.load]
fio = { rw = "write", size = "1M" }
[workload.load]  #! the same key or [table] is defined already
fio = { rw = "read", size = "1M" }

trial = { warm_up = "1s" }
[trial.settle]  #! cannot declare trial.settle twice
sync = true

[compare]  #! should be a list
factor = "fs"
"""
)
TOML += read("description = \"a\0b\"  #! illegal character '\\x00'")
TOML += read("description = \"a\rb\"  #! illegal character '\\r'")

KEYS = read(
    r"""
primry = "bandwidth"  #! primry: this key is unknown; did you mean 'primary'?
schema = 2  #! 2 should be 1
title = 1  #! title: 1 should be text in quotes
title = ""  #! is empty: write a text
confidence = 95  #! should be at most 0.9999
scratch = "/var/../tmp"  #! must be an absolute path
repeat = 5  #! 5 should be a table
parameters.size = 2024-01-31  #! 2024-01-31 should be
parameters.target = "x"  #! {target} is filled in when a trial runs
probes.stalls = { treshold = "1s" }  #! did you mean 'threshold'?
probes.stalls = { threshold = "1 fortnight" }  #! is not a duration
nodes.vm.kind = "vmm"  #! unknown kind of node "vmm"; did you mean 'vm'?
nodes.vm.stack = []  #! nodes.vm.stack: [] is not a stack
nodes.far.kind = "mainframe"  #! unknown kind of node "mainframe"; there are: local, netns, ssh, vm
nodes.many.count = 100000  #! should be at most 256
nodes.host.count = 2  #! host means this machine, once
repeat = { min = 9, max = 3 }  #! min = 9 is more than max = 3

[workloads.load]  #! did you mean 'workload'?
fio = { rw = "write" }
[workload.load]
fio = { rw = "write" }

[repeat]
until = "0%"  #! is neither "decided" nor "max" nor a precision
min = "5"  #! "5" should be a whole number
min = 0  #! 0 should be at least 1
max = 9999999999999999999999999999999999999999  #! this number should be at most 10000

[repeat]  #! min = 5 is more than max = 3
max = 3

[parameters]
size = "{size}"  #! {size} contains itself: size → size
[workload.load]
fio = { rw = "write", size = "{size}" }

[parameters]
a = "{b}x"
b = "{a}x"  #! {a} contains itself: a → b → a
[workload.load]
fio = { rw = "write", size = "{a}" }

[trial]
timeout = "0s"  #! longer than 0 s
timeout = "365000d"  #! longer than a year
warmup = "1s"  #! did you mean 'warm_up'?
settle = { drop_cache = true }  #! did you mean 'drop_caches'?
verify = { fio = { rw = "read", size = "1M" } }  #! fio is a load, which finds nothing wrong: write commands, or posix
verify = { posix = { checks = ["fsnyc"] } }  #! unknown check; there are rename-over-open
prepare = [[]]  #! [] is too short
workloads = ["laod"]  #! unknown workload 'laod'; did you mean 'load'?
workloads = []  #! at least one workload
workloads = ["load", "load"]  #! is listed twice
timeouts = [{ where = { fs = "xfs" }, timeout = "1h" }]  #! unknown factor 'fs'
setup_timeout = 0  #! longer than 0 s

stack = [FILE, { layer = "loop" }]  #! needs a Dir
[trial]
verify = "posix"

[trial]
verify = "posix"
[workload.verify]  #! the check of [trial] verify has this name: give the load another
fio = { rw = "write", size = "1M" }

[nodes."a b"]  #! "a b" is not a valid name
count = 1
"""
)

FACTORS = read(
    r"""
factors.bs = 4096  #! a factor is a table: levels = [ … ], or a name for each level
factors.bs.levels = []  #! levels must be a list of one or more values
factors.bs.levels = ["4k", 4096]  #! the level "4k" is listed twice
factors.fs.levels = [{ layer = "directory" }]  #! a level that is a table or a list needs a name
factors.options.levels = ["noatime", ""]  #! "" cannot be shown as a name in tables: give it a short name
factors.options.levels = ["a\nb"]  #! cannot be shown as a name in tables
workload.load.command = { argv = ["awk", "{print}"] }  #! for the text itself, write {{print}}
factors = ["4k"]  #! ["4k"] should be a table
[factors.bs]  #! a factor is a table
factors.bs = { levels = ["4k", "8k", "4k"] }  #! factors.bs.levels[2]: the level "4k" is listed twice
factors.sync = { off = 0, none = 0 }  #! the level "none" is the same as "off"
factors.bs = { levels = ["bg"], big = "1M" }  #! factors.bs.levels[0]: unknown level "bg" of bs; did you mean 'big'?
factors.bs = { levels = "big", big = "1M" }  #! beside levels with names, levels is a list of the names that are run
factors.bs = { levels = ["big", "big"], big = "1M" }  #! the level "big" is listed twice

[factors."block size"]  #! "block size" is not a valid name
[factors.4k]  #! "4k" is not a valid name
levels = ["4k"]

[parameters]
bs = "4k"
[factors.bs]  #! bs is a parameter already
levels = ["4k", "8k"]

[factors.round]  #! {round} is filled in when a trial runs
levels = [1, 2]

factors.bs = ["4k", "8k"]
[workload.load]
fio = { rw = "write", size = "1M", bs = "{bss}" }  #! {bss}; did you mean 'bs'?

factors.bs = ["4k", "8k"]
[[compare]]
factor = "bss"  #! unknown factor 'bss'; did you mean 'bs'?
pairs = [["4k", "16k"]]  #! compare[0].pairs[0][1]: bs has no level '16k'
pairs = [["4k", "4k"]]  #! '4k' is compared with itself
pairs = [["4k"]]  #! compare[0].pairs[0]

factors.bs = ["4k", "8k"]
compare = [{ pairs = [["4k", "8k"], ["8k", "4k"]] }]  #! '8k' and '4k' are compared already
compare = [{ within = false, pooled = false }]  #! it compares nothing

factors.bs = ["4k", "8k", "16k"]
[[compare]]
pairs = [["4k", "8k", "16k"]]  #! ["4k", "8k", "16k"] is too long: it takes at most 2

factors.jobs = [1, 2]
[[compare]]
pairs = [[[1], [2]]]  #! compare[0].pairs[0][0]: [1] should be text in quotes

[[compare]]
pairs = [["a", "b"]]  #! without factors there is nothing to compare
metrics = []  #! [] is too short: it takes at least 1
margin = 5  #! must lie between 0 % and 100 %, such as "5%"
margin = "small"  #! "small" is not a share: write a percentage
metric = ["iops"]  #! did you mean 'metrics'?

factors.bs = ["4k", "8k"]
[[compare]]
metrics = ["iops"]
[[compare]]
factor = "fs"  #! compare[1].factor: unknown factor 'fs'; there are: bs

factors.bs = ["4k", "8k"]
[[trial.timeouts]]
timeout = "1h"
[trial.timeouts.where]
bs = "16k"  #! trial.timeouts[0].where.bs: bs has no level '16k'

[parameters]
a = "xxxxxxxxxx"
b = "{a}{a}{a}{a}{a}{a}{a}{a}{a}{a}"
c = "{b}{b}{b}{b}{b}{b}{b}{b}{b}{b}"
d = "{c}{c}{c}{c}{c}{c}{c}{c}{c}{c}"
e = "{d}{d}{d}{d}{d}{d}{d}{d}{d}{d}"
f = "{e}{e}{e}{e}{e}{e}{e}{e}{e}{e}"
g = "{f}{f}{f}{f}{f}{f}{f}{f}{f}{f}"
[workload.load]  #! too large: does one contain others many times?
fio = { rw = "write", size = "1M", description = "{g}{g}{g}{g}" }
"""
)
FACTORS += read(
    f"""
[factors]
long.levels = ["{"x" * 1000}"]  #! cannot be shown as a name in tables
number.levels = [1, {"9" * 1000}]  #! cannot be shown as a name in tables

[factors.a]  #! these factors make 1000000 cells, more than 10000
levels = {list(range(1000))}
[factors.b]
levels = {list(range(1000))}
"""
)

CLAIMS = read(
    r"""
claim = [{ name = "It is so", at = { mdoe = "direct" }, between = [1, 2] }]  #! claim[0].at.mdoe: unknown factor 'mdoe'; did you mean 'mode'?
claim = [{ name = "It is so", left = { mode = "direct" }, right = { mode = "sync" } }]  #! a claim has either left, right and expect, or at and between
claim = [{ name = "It is so", at = { mode = "direct" }, between = [1, 2], expect = "more" }]  #! a claim has either left, right and expect, or at and between
claim = [{ name = "It is so", at = { mode = "direct" }, between = [2, 1] }]  #! its first number must be the smaller one
claim = [{ name = "It is so", left = { mode = "direct" }, right = { mode = "sync" }, expect = "more", margin = "5%" }]  #! margin is for expect = "equivalent"
claim = [{ name = "It is so", metric = "wirte.iops", at = { mode = "direct" }, between = [1, 2] }]  #! claim[0].metric: unknown metric 'wirte.iops'; did you mean 'write.iops'?

[[claim]]
name = "It is so"
left = { mode = "direct" }
right = { mode = "snyc" }  #! claim[0].right.mode: mode has no level 'snyc'; did you mean 'sync'?
right = { mode = "direct" }  #! left and right are the same levels
expect = "more"

[[claim]]
name = "It is so"
left = { mode = "direct", jobs = 1 }
right = { mode = "sync", jobs = 4 }  #! left and right may differ in one factor, not in mode and jobs
right = { mode = "sync" }  #! left and right must name the same factors, and one of them lacks jobs
expect = "more"

[[claim]]
name = "It is so"
left = { mode = "direct" }
right = { mode = "sync" }
expect = "twice"  #! claim[0].expect: "twice" is none of: more, less, equivalent, more than 2x, less than 0.5x
expect = "more than 0.5x"  #! more than 0.5x may be less
expect = "less than 2x"  #! less than 2x is not less

claim = [{ name = "It is so", at = { mode = "sync" }, between = [1, 2] },
  { name = "It is so", at = { mode = "direct" }, between = [1, 2] },  #! this is claimed already
]
""",
    head='factors = { mode = ["buffered", "direct", "sync"], jobs = [1, 4] }\n',
)
