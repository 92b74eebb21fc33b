"""Differences that are put there by hand, found on the real machine: fio held to a rate, a neighbour that burns CPU.

Nothing here depends on how fast the machine is. What fio does in a second is a count that its throttle sets; what the
neighbour costs is not known, only on which side it is. Undecided is an honest answer on a machine that is busy with
other things; the wrong verdict never is.
"""

from __future__ import annotations

import os

import pytest

from laboratory import Laboratory
from storlab.analysis.summary import Comparison

BURNERS = 4 * (os.cpu_count() or 1)
"""Each in a session of its own, or they would all together get only as much as one fio does (autogroups)."""

COMMON = """
stack = [{ layer = "directory" }]
repeat = { until = "decided", min = 6, max = 10 }
trial = { settle = { sync = false, drop_caches = false }, workloads = ["load", "{neighbour.load}"] }
compare = [{ margin = MARGIN }]
[factors.neighbour]
FACTOR
[workload.quiet]
command = { argv = ["sleep", "0.5"] }
"""

RATES = """
primary = "load:write.iops"
[workload.load.fio]
rw = "write"
bs = "4k"
ioengine = "psync"
size = "4M"
runtime = "800ms"
time_based = true
rate_iops = "{neighbour.rate}"
"""

BURNING = f"""
primary = "load:read.iops"
[workload.load.fio]
rw = "randread"
bs = "4k"
ioengine = "null"
size = "4M"
runtime = "200ms"
time_based = true
numjobs = {os.cpu_count()}    # on every CPU, so that there is none where the neighbour isn't
[workload.burn]
command = {{ argv = ["sh", "-c", "for i in $(seq {BURNERS}); do setsid timeout 0.6 yes > /dev/null & done; wait"] }}
"""


def study(load: str, factor: str, margin: float) -> str:
    head, _, rest = load.lstrip().partition("\n")
    return head + COMMON.replace("MARGIN", str(margin)).replace("FACTOR", factor) + rest


def rates(a: int, b: int, margin: float) -> str:
    levels = {"first": a, "second": b}
    rows = [f"{name} = {{ load = 'quiet', rate = {rate}, of = '{name}' }}" for name, rate in levels.items()]
    return study(RATES, "\n".join(rows), margin)


def the_answer(lab: Laboratory, study: str) -> Comparison:
    outcome = lab.execute(study)
    assert outcome.ending == "complete", outcome.ending
    (answer,) = outcome.summary.comparisons
    return answer


@pytest.mark.slow
def test_three_percent_more_are_found_and_the_interval_contains_them(lab: Laboratory) -> None:
    answer = the_answer(lab, rates(1030, 1000, 0.01))
    assert answer.verdict in ("better", "undecided"), answer.reason
    assert contains(answer, 1.03), answer.reason


@pytest.mark.slow
def test_equal_rates_are_never_told_apart(lab: Laboratory) -> None:
    answer = the_answer(lab, rates(1000, 1000, 0.05))
    assert answer.verdict in ("equivalent", "undecided"), answer.reason
    assert contains(answer, 1.0), answer.reason


@pytest.mark.slow
def test_a_neighbour_that_burns_cpu_is_never_called_faster(lab: Laboratory) -> None:
    answer = the_answer(lab, study(BURNING, "quiet = { load = 'quiet' }\nburning = { load = 'burn' }", 0.05))
    assert answer.verdict in ("better", "undecided"), answer.reason
    assert answer.high is None or answer.high > 1, answer.reason


def contains(answer: Comparison, truth: float) -> bool:
    """fio's throttle works in whole operations: one of 800 more or less is its own doing."""
    if answer.low is None or answer.high is None:
        return True
    return answer.low - 1 / 800 <= truth <= answer.high + 1 / 800
