"""Which of fio's jobs ran at once, and which one after another.

A job's logs count from its own start. fio's report (3.33) has groups of jobs, and doesn't say whether they waited for
each other: options do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storlab.grouping import grouped
from storlab.tools.fio.metrics import Job as Reported
from storlab.tools.fio.phases import AT_ONCE, Phases
from storlab.workloads.fio.options import WAITS, Job, is_on, plain, processes, text

_BEGINS = ("startdelay", "ramp_time")
"""What a job does before its logs begin to count."""


def phases_of(jobs: Sequence[Job], reported: Sequence[Reported], logged: int) -> Phases | None:
    """The phases of these jobs, of which ``logged`` processes left logs.

    ``None`` where jobs of one phase began at different times, or what fio reported isn't what the options tell.
    """
    if logged <= 1:
        return AT_ONCE
    of, groups = _planned(jobs)
    if _begin_apart(jobs, of) or len({job.phase for job in reported}) != len(groups):
        return None
    if not any(of):
        return AT_ONCE
    own = tuple(phase for job, phase in zip(jobs, of, strict=True) for _ in range(processes(job.options)))
    if logged != len(own):
        return None
    longest = grouped((groups[job.phase], job.runtime) for job in reported)
    return Phases(own, tuple(max(longest[phase]) for phase in sorted(longest)))


def _planned(jobs: Iterable[Job]) -> tuple[list[int], list[int]]:
    """The phase of each job, and that of each group that fio reports; a job that waits begins both, but the first."""
    of, groups = list[int](), [0]
    for job in jobs:
        waits = _has(job, *WAITS)
        if of and (waits or _has(job, "new_group")):
            groups.append(groups[-1] + waits)
        of.append(groups[-1])
    return of, groups


def _begin_apart(jobs: Sequence[Job], of: Sequence[int]) -> bool:
    """Whether jobs of one phase begin to count at different times."""
    delays = [_delay(job, "startdelay") for job in jobs]
    if any("-" in delay or ":" in delay for delay in delays):  # fio draws one for each process
        return True
    if any(of) and any(delays):  # what is still to begin is not waited for
        return True
    begins = grouped((phase, [_delay(job, key) for key in _BEGINS]) for job, phase in zip(jobs, of, strict=True))
    apart = any(each != begin[0] for begin in begins.values() for each in begin)
    return apart or any(_has(job, "wait_for") for job in jobs)


def _has(job: Job, *keys: str) -> bool:
    return any(is_on(value) for key, value in job.options.items() if plain(key) in keys)


def _delay(job: Job, key: str) -> str:
    return next((text(value) for name, value in job.options.items() if plain(name) == key and is_on(value)), "")
