"""All probes by the name that studies use. A new one is a module and a line here.

A package of somebody else's adds probes without a line here, through the entry-point group ``storlab.probes``.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from storlab.probes.alignment.probe import AlignmentProbe
from storlab.probes.base import Probe
from storlab.probes.host_load import HostLoadProbe
from storlab.probes.processes import ProcessesProbe
from storlab.probes.stalls import StallsProbe

_BUILT_IN: tuple[type[Probe], ...] = (HostLoadProbe, StallsProbe, ProcessesProbe, AlignmentProbe)


@cache
def probe_types() -> dict[str, type[Probe]]:
    """Name in study files → class."""
    found = {cls.kind: cls for cls in _BUILT_IN}
    for entry in entry_points(group="storlab.probes"):
        found[entry.name] = entry.load()
    return found
