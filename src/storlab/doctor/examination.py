"""All checks, in the order in which they are shown."""

from __future__ import annotations

from storlab.doctor import agent, block, fio, host, images, leftovers, network, programs, studies, tracing, virtual
from storlab.doctor.check import Check
from storlab.doctor.machine import Machine


def examine(machine: Machine) -> list[Check]:
    """Look at everything once; changes nothing."""
    parts = (host, agent, block, fio, tracing, virtual, images, network, programs)
    found = [check for part in parts for check in part.checks(machine)]
    return [*found, *leftovers.checks(), *studies.checks()]
