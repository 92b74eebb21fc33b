"""Factors, levels and comparisons."""

from . import read

MISTAKES = read(
    {
        "factors as a list": """
factors = ["4k"]  #! ["4k"] should be a table
""",
        "a factor as a number": """
[factors]
bs = 4096  #! a factor is a table: levels = [ … ], or a name for each level
""",
        "a factor without levels": """
[factors.bs]  #! a factor is a table
""",
        "an empty list of levels": """
[factors.bs]
levels = []  #! levels must be a list of one or more values
""",
        "levels that are no list": """
[factors.bs]
levels = "4k"  #! levels must be a list
""",
        "a level twice": """
[factors.bs]
levels = [
  "4k",
  "8k",
  "4k",  #! factors.bs.levels[2]: the level "4k" is listed twice
]
""",
        "a level twice in other words": """
[factors.bs]
levels = ["4k", 4096]  #! the level "4k" is listed twice
""",
        "two names for one number": """
[factors.sync]
off = 0
none = 0  #! the level "none" is the same as "off"
""",
        "levels and names": """
[factors.bs]  #! either levels = [ … ] or a name for each level, not both
levels = ["4k"]
big = "1M"
""",
        "a table without a name": """
[factors.fs]
levels = [{ layer = "directory" }]  #! a level that is a table or a list needs a name
""",
        "an empty level": """
[factors.options]
levels = ["noatime", ""]  #! "" cannot be shown as a name in tables: give it a short name
""",
        "a level of several lines": '''
[factors.options]
levels = ["""a
b"""]  #! factors.options.levels[0]
'''.replace(
            'levels = ["""a\nb"""]  #! factors.options.levels[0]',
            'levels = ["a\\nb"]  #! cannot be shown as a name in tables',
        ),
        "a level of a thousand signs": f"""
[factors.options]
levels = ["{"x" * 1000}"]  #! cannot be shown as a name in tables
""",
        "a level of a thousand digits": f"""
[factors.number]
levels = [1, {"9" * 1000}]  #! cannot be shown as a name in tables
""",
        "a factor with a space in its name": """
[factors."block size"]  #! "block size" is not a valid name
levels = ["4k"]
""",
        "a factor with a dot in its name": """
[factors."block.size"]  #! "block.size" is not a valid name
levels = ["4k"]
""",
        "a factor that begins with a digit": """
[factors.4k]  #! "4k" is not a valid name
levels = ["4k"]
""",
        "a factor that is a parameter too": """
[parameters]
bs = "4k"
[factors.bs]  #! bs is a parameter already
levels = ["4k", "8k"]
""",
        "a factor that Storlab fills in": """
[factors.round]  #! {round} is filled in when a trial runs
levels = [1, 2]
""",
        "too many cells": f"""
[factors.a]  #! these factors make 1000000 cells, more than 10000
levels = {list(range(1000))}
[factors.b]
levels = {list(range(1000))}
""",
        "a misspelt factor in a workload": """
[factors.bs]
levels = ["4k", "8k"]
[workload.load]
fio = { rw = "write", size = "1M", bs = "{bss}" }  #! {bss}; did you mean 'bs'?
""",
        "braces that are meant": """
[workload.load]
command = { argv = ["awk", "{print}"] }  #! for the text itself, write {{print}}
""",
        "a comparison by a factor that is not there": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
factor = "bss"  #! unknown factor 'bss'; did you mean 'bs'?
""",
        "a comparison of a level that is not there": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
pairs = [["4k", "16k"]]  #! compare[0].pairs[0][1]: bs has no level '16k'
""",
        "a comparison of a level with itself": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
pairs = [["4k", "4k"]]  #! '4k' is compared with itself
""",
        "a pair twice": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
pairs = [
  ["4k", "8k"],
  ["8k", "4k"],  #! '8k' and '4k' are compared already
]
""",
        "a pair of three": """
[factors.bs]
levels = ["4k", "8k", "16k"]
[[compare]]
pairs = [["4k", "8k", "16k"]]  #! ["4k", "8k", "16k"] is too long: it takes at most 2
""",
        "a pair of one": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
pairs = [["4k"]]  #! compare[0].pairs[0]
""",
        "pairs that are one pair": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
pairs = ["4k", "8k"]  #! should be a list
""",
        "pairs of lists": """
[factors.jobs]
levels = [1, 2]
[[compare]]
pairs = [[[1], [2]]]  #! compare[0].pairs[0][0]: [1] should be text in quotes
""",
        "pairs without factors": """
[[compare]]
pairs = [["a", "b"]]  #! without factors there is nothing to compare
""",
        "a comparison of nothing": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]  #! it compares nothing
within = false
pooled = false
""",
        "a comparison by no metrics": """
[[compare]]
metrics = []  #! [] is too short: it takes at least 1
""",
        "a margin of nothing": """
[[compare]]
margin = 0  #! must lie between 0 % and 100 %
""",
        "a margin in whole per cent": """
[[compare]]
margin = 5  #! must lie between 0 % and 100 %, such as "5%"
""",
        "a margin in words": """
[[compare]]
margin = "small"  #! "small" is not a share: write a percentage
""",
        "a misspelt key of a comparison": """
[[compare]]
metric = ["iops"]  #! did you mean 'metrics'?
""",
        "the second comparison is wrong": """
[factors.bs]
levels = ["4k", "8k"]
[[compare]]
metrics = ["iops"]
[[compare]]
factor = "fs"  #! compare[1].factor: unknown factor 'fs'; there are: bs
""",
        "a time-out for a level that is not there": """
[factors.bs]
levels = ["4k", "8k"]
[[trial.timeouts]]
timeout = "1h"
[trial.timeouts.where]
bs = "16k"  #! trial.timeouts[0].where.bs: bs has no level '16k'
""",
        "a parameter that multiplies itself": """
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
""",
    }
)
