"""Not TOML, or only nearly."""

from . import read

MISTAKES = read(
    {
        "text without quotes": """
[parameters]
size = 64M  #! text must be in quotes: "64M"
""",
        "a word without quotes": """
primary = bandwidth  #! text must be in quotes: "bandwidth"
""",
        "a word without quotes in a table": """
[workload.load]
fio = { rw = randwrite, bs = "4k" }  #! text must be in quotes: "randwrite"
""",
        "a size without quotes in a list": """
[factors.bs]
levels = ["4k", 64k]  #! text must be in quotes: "64k"
""",
        "a path without quotes": """
scratch = /var/tmp  #! text must be in quotes: "/var/tmp"
""",
        "Python's True": """
[trial]
settle.sync = True  #! write true or false
""",
        "yes": """
[trial]
settle.sync = yes  #! write true or false
""",
        "YAML": """
title: "A study"  #! TOML writes key = value, not key: value
""",
        "a key without a value": """
primary =  #! invalid value
""",
        "a key alone": """
primary  #! write key = value
""",
        "a table in braces over several lines": """
[workload.load]
fio = { rw = "write",  #! a table in braces { … } must be on one line
        bs = "4k" }
""",
        "a comma before the closing brace": """
[workload.load]
fio = { rw = "write", bs = "4k", }  #! no comma before the closing brace
""",
        "a string that is not closed": """
primary = "bandwidth  #! a text in quotes ends on the line where it begins
""",
        "a header that is not closed": """
[repeat  #! expected ']'
max = 3
""",
        "the same key twice": """
primary = "bandwidth"
primary = "iops"  #! the same key or [table] is defined already
""",
        "the same table twice": """
[repeat]
min = 2
[repeat]  #! the same key or [table] is defined already
max = 3
""",
        "the same workload twice": """
[workload.load]
fio = { rw = "write", size = "1M" }
[workload.load]  #! the same key or [table] is defined already
fio = { rw = "read", size = "1M" }
""",
        "a table in braces that is added to": """
trial = { warm_up = "1s" }
[trial.settle]  #! cannot declare trial.settle twice
sync = true
""",
        "an impossible date": """
description = 2024-13-45  #! this is not TOML
""",
        "two values on one line": """
primary = "bandwidth" title = "x"  #! expected newline
""",
        "a comment in C": """
// what this is about  #! a comment begins with #
""",
        "an INI file's comment": """
; what this is about  #! a comment begins with #
""",
        "an unknown escape": """
description = "C:\\data"  #! write two, or the text in single quotes
""",
        "a list without commas": """
[factors.bs]
levels = ["4k" "64k"]  #! is a comma or a bracket missing?
""",
        "a leading zero": """
[repeat]
min = 05  #! this is not TOML
""",
        "a NUL byte": """
description = "a\0b"  #! illegal character '\\x00'
""",
        "a carriage return alone": """
description = "a\rb"  #! illegal character '\\r'
""",
        "an array of tables after a table": """
[compare]  #! should be a list
factor = "fs"
""",
    }
)
