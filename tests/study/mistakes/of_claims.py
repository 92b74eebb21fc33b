"""Claims that no cell of the study could answer, or that can't be read."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

_FACTORS = '[factors]\nmode = ["buffered", "direct", "sync"]\njobs = [1, 4]\n'


def _claim(lines: str, more: str = "") -> str:
    return f'{_FACTORS}{more}[[claim]]\nname = "It is so"\n{lines}'


MISTAKES = read(
    {
        "a claim about an unknown factor": _claim(
            "at = { mdoe = \"direct\" }  #! claim[0].at.mdoe: unknown factor 'mdoe'; did you mean 'mode'?\nbetween = [1, 2]\n"
        ),
        "a claim about a level that there is not": _claim(
            'left = { mode = "direct" }\nright = { mode = "snyc" }  #! claim[0].right.mode: mode has no level \'snyc\'; did you mean \'sync\'?\nexpect = "more"\n'
        ),
        "a claim whose sides differ in two factors": _claim(
            'left = { mode = "direct", jobs = 1 }\nright = { mode = "sync", jobs = 4 }  #! left and right may differ in one factor, not in mode and jobs\nexpect = "more"\n'
        ),
        "a claim whose sides are the same": _claim(
            'left = { mode = "direct" }\nright = { mode = "direct" }  #! left and right are the same levels\nexpect = "more"\n'
        ),
        "a claim of which one side leaves out a factor": _claim(
            'left = { mode = "direct", jobs = 1 }\nright = { mode = "sync" }  #! left and right must name the same factors, and one of them lacks jobs\nexpect = "more"\n'
        ),
        "a claim that expects something unheard of": _claim(
            'left = { mode = "direct" }\nright = { mode = "sync" }\nexpect = "twice"  #! claim[0].expect: "twice" is none of: more, less, equivalent, more than 2x, less than 0.5x\n'
        ),
        "more than less": _claim(
            'left = { mode = "direct" }\nright = { mode = "sync" }\nexpect = "more than 0.5x"  #! more than 0.5x may be less\n'
        ),
        "less than more": _claim(
            'left = { mode = "direct" }\nright = { mode = "sync" }\nexpect = "less than 2x"  #! less than 2x is not less\n'
        ),
        "a claim without what it expects": '[factors]\nmode = ["direct", "sync"]\n[[claim]]  #! a claim has either left, right and expect, or at and between\nname = "It is so"\nleft = { mode = "direct" }\nright = { mode = "sync" }\n',
        "a claim of both forms": '[factors]\nmode = ["direct", "sync"]\n[[claim]]  #! a claim has either left, right and expect, or at and between\nname = "It is so"\nat = { mode = "direct" }\nbetween = [1, 2]\nexpect = "more"\n',
        "a range whose ends are the wrong way round": '[factors]\nmode = ["direct", "sync"]\n[[claim]]  #! its first number must be the smaller one\nname = "It is so"\nat = { mode = "direct" }\nbetween = [2, 1]\n',
        "a margin of a claim that has none": '[factors]\nmode = ["direct", "sync"]\n[[claim]]  #! margin is for expect = "equivalent"\nname = "It is so"\nleft = { mode = "direct" }\nright = { mode = "sync" }\nexpect = "more"\nmargin = "5%"\n',
        "a claim that is made twice": _claim(
            'name = "It is so"  #! this is claimed already\nat = { mode = "direct" }\nbetween = [1, 2]\n',
            '[[claim]]\nname = "It is so"\nat = { mode = "sync" }\nbetween = [1, 2]\n',
        ).replace('name = "It is so"\nname = "It is so"  #!', 'name = "It is so"  #!'),
        "a claim about a metric that nothing yields": _claim(
            "metric = \"wirte.iops\"  #! claim[0].metric: unknown metric 'wirte.iops'; did you mean 'write.iops'?\nat = { mode = \"direct\" }\nbetween = [1, 2]\n"
        ),
    }
)
