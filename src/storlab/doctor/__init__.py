"""What this machine can do: one check for each thing that studies need, with what would fix it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from storlab.doctor import host, kernel, runs, tracing, virtual, workloads
from storlab.doctor.machine import Check, Machine

_AT_ONCE = 4  # most of the time goes by in programs that are asked something


_OF_ANY_MACHINE = (
    *(host.checks, kernel.checks, workloads.checks, tracing.checks),
    *(kernel.networks, workloads.others),
)


def examine(machine: Machine) -> list[Check]:
    """Look at everything once, in the order in which it is shown; changes nothing."""
    parts = (*_OF_ANY_MACHINE[:4], virtual.checks, *_OF_ANY_MACHINE[4:])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [pool.submit(part, machine) for part in parts]
        of_runs = [*runs.checks(), *runs.shipped()]
    return [*(check for part in found for check in part.result()), *of_runs]


def examine_other(machine: Machine) -> list[Check]:
    """The same of a machine on which there need be no Storlab: without what is Storlab's own."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [check for checks in pool.map(lambda part: part(machine), _OF_ANY_MACHINE) for check in checks]
