"""What this machine can do: one check for each thing that studies need, with what would fix it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from storlab.doctor import host, kernel, runs, tracing, virtual, workloads
from storlab.doctor.machine import Check, Machine

_AT_ONCE = 4  # most of the time goes by in programs that are asked something


def examine(machine: Machine) -> list[Check]:
    """Look at everything once, in the order in which it is shown; changes nothing."""
    parts = (
        *(host.checks, kernel.checks, workloads.checks, tracing.checks, virtual.checks),
        *(kernel.networks, workloads.others),
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [pool.submit(part, machine) for part in parts]
        of_runs = [*runs.checks(), *runs.shipped()]
    return [*(check for part in found for check in part.result()), *of_runs]
