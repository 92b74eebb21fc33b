"""What ``[crash]`` asks for and can't be."""

from . import read

MISTAKES = read(
    {
        "no power cuts": """
[crash]
moments = 0  #! 0 should be at least 1
""",
        "a unit that no disk has": """
[crash]
unit = "3k"  #! "3k"
""",
        "a unit that is a number": """
[crash]
unit = 512  #! crash.unit: 512 should be in quotes: "512"
""",
        "a misspelt key of crash": """
[crash]
momments = 3  #! this key is unknown; did you mean 'moments'?
""",
        "power cuts, and no load that commits": """
[crash]  #! no load of this study can tell what a power cut took: write load = { ledger = {} }
""",
        "power cuts of a load that commits nothing": """
[crash]
load = { fio = { rw = "write", size = "1M" } }  #! fio can't tell what a power cut took: write ledger, or sql-ledger
""",
        "power cuts of nodes that are not there": """
[crash]
load = { ledger = {} }
on   = "vm"  #! unknown nodes 'vm'; there are: host
""",
    }
)
