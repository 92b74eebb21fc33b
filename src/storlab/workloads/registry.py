"""All workloads by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds workloads without a line here, through the entry-point group ``storlab.workloads``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from storlab.workloads.base import Workload
from storlab.workloads.command.workload import CommandWorkload
from storlab.workloads.files.workload import FilesWorkload
from storlab.workloads.fio.workload import FioWorkload

_BUILT_IN: tuple[type[Workload], ...] = (FioWorkload, FilesWorkload, CommandWorkload)


@cache
def workload_types() -> dict[str, type[Workload]]:
    """Name in study files → class."""
    found = {cls.kind: cls for cls in _BUILT_IN}
    for entry in entry_points(group="storlab.workloads"):
        found[entry.name] = entry.load()
    return found
