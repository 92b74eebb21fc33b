"""Which of fio's jobs ran at once, and which one after another, by their options and what fio reported."""

from __future__ import annotations

import pytest

from storlab.formats.fio.document import NO_LATENCY
from storlab.formats.fio.metrics import Direction
from storlab.formats.fio.metrics import Job as Reported
from storlab.formats.fio.phases import AT_ONCE, Phases
from storlab.workloads.fio.options import jobs_of, sections_of
from storlab.workloads.fio.phases import phases_of


def phases(lines: str, *reported: tuple[int, float], logged: int) -> Phases | None:
    """``reported``: of each job its group, and for how long it ran; ``lines`` of a job file, apart by a blank."""
    jobs = jobs_of(sections_of(lines.replace(" ", "\n")))
    return phases_of(jobs, [_reported(group, runtime) for group, runtime in reported], logged)


def _reported(group: int, runtime: float) -> Reported:
    ways = {"write": Direction(4096, 1, runtime, NO_LATENCY, total=False)}
    return Reported("x", group, ways, NO_LATENCY, 0.0, 0.0, runtime, 0, 0)


def test_jobs_that_wait_for_none_ran_at_once() -> None:
    assert phases("[a] [b] numjobs=2", (0, 1.0), (0, 2.0), (0, 2.0), logged=3) == AT_ONCE
    assert phases("[global] startdelay=2 ramp_time=1 [a] [b]", (0, 1.0), (0, 1.0), logged=2) == AT_ONCE


def test_a_single_process_may_begin_whenever_it_likes() -> None:
    assert phases("[a] startdelay=1-5", (0, 1.0), logged=1) == AT_ONCE


def test_a_phase_begins_with_a_job_that_waits() -> None:
    lines = "[a] [b] numjobs=2 stonewall [c] wait-for-previous [d]"
    found = phases(lines, (0, 1.0), (1, 2.0), (1, 2.5), (2, 4.0), (2, 3.0), logged=5)
    assert found == Phases((0, 1, 1, 2, 2), (1.0, 2.5, 4.0))


def test_all_but_the_first_wait_where_all_are_told_to() -> None:
    assert phases("[global] stonewall [a] [b]", (0, 1.0), (1, 2.0), logged=2) == Phases((0, 1), (1.0, 2.0))


def test_a_new_group_is_reported_apart_and_waits_for_none() -> None:
    assert phases("[a] [b] new_group", (0, 1.0), (1, 2.0), logged=2) == AT_ONCE
    found = phases("[a] [b] stonewall [c] new_group", (0, 1.0), (1, 2.0), (2, 5.0), logged=3)
    assert found == Phases((0, 1, 1), (1.0, 5.0))


def test_processes_that_fio_reports_as_one_still_have_a_log_each() -> None:
    found = phases("[a] numjobs=2 group_reporting [b] stonewall", (0, 1.0), (1, 2.0), logged=3)
    assert found == Phases((0, 0, 1), (1.0, 2.0))


@pytest.mark.parametrize(
    "lines",
    [
        "[a] [b] startdelay=5",
        "[global] startdelay=1-5 [a] [b]",
        "[a] [b] wait_for=a",
        "[a] ramp_time=5 [b]",
    ],
)
def test_jobs_that_begin_apart_have_no_common_time(lines: str) -> None:
    assert phases(lines, (0, 1.0), (0, 1.0), logged=2) is None


def test_a_job_that_is_still_to_begin_is_not_waited_for() -> None:
    assert phases("[a] startdelay=5 [b] stonewall startdelay=5", (0, 1.0), (1, 1.0), logged=2) is None


def test_what_fio_reports_otherwise_than_its_options_say_is_unknown() -> None:
    assert phases("[a] [b]", (0, 1.0), (1, 1.0), logged=2) is None
    assert phases("[a] numjobs=${N} [b] stonewall", (0, 1.0), (0, 1.0), (1, 1.0), logged=3) is None
