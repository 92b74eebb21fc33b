"""Studies that are as small as studies can be."""

from __future__ import annotations

from collections.abc import Sequence

from laboratory.samples import sample
from storlab.study.study import Study, parse_study

FIO = '{ rw = "randwrite", bs = "4k", ioengine = "psync", size = "1M", runtime = "200ms", time_based = true }'

LOOPS = sample(__file__, "cases/loops.toml", fio=FIO)
"""Two file systems on loop devices, two rounds: four trials, which leave the machine its page cache."""

POWER_CUTS = sample(__file__, "cases/power-cuts.toml")
"""A study whose two set-ups differ in what a power cut takes; it has a heading of its own."""


DIRECTORY = '[{ layer = "directory" }]'
ON_LOOP = '{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }'
"""A stack of a file system of its own; needs root."""


def directory(workload: str, *, rounds: int = 1, trial: str = "", rest: str = "", stack: str = DIRECTORY) -> str:
    """One workload in a directory, which needs no root, or on another stack. ``rest``: tables at the study's end."""
    primary = "bandwidth" if workload.startswith("fio") else "elapsed"
    trial = f", {trial}" if trial else ""
    words = {"primary": primary, "rounds": rounds, "trial": trial, "workload": workload, "rest": rest, "stack": stack}
    return sample(__file__, "cases/directory.toml", **words)


def parsed(text: str, *overrides: str, only: Sequence[str] = (), file: str = "s.toml") -> Study:
    """A study that names no other file."""

    def read(name: str) -> str:
        raise ValueError(f"{name}: this study names no file")

    return parse_study(text.encode(), file, read, overrides, only)
