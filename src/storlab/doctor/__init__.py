"""What this machine can do: one check for each thing that studies need, with what would fix it."""

from __future__ import annotations

from storlab.doctor import host, kernel, runs, tracing, virtual, workloads
from storlab.doctor.machine import Check, Machine


def examine(machine: Machine) -> list[Check]:
    """Look at everything once, in the order in which it is shown; changes nothing."""
    parts = (
        *(host.checks, kernel.checks, workloads.checks, tracing.checks, virtual.checks),
        *(kernel.networks, workloads.others),
    )
    return [*(check for part in parts for check in part(machine)), *runs.checks(), *runs.shipped()]
