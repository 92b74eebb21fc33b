"""Differences and mechanisms that are put there by hand, found on the real machine.

Nothing here depends on how fast the machine is. What fio does in a second is a count that its throttle sets; what the
neighbour costs is not known, only on which side it is. Undecided is an honest answer on a machine that is busy with
other things; the wrong verdict never is.
"""

from __future__ import annotations

import os

import pytest

from laboratory import Laboratory
from laboratory.samples import sample
from storlab.analysis.summary import Comparison, Difference

BURNERS = 4 * (os.cpu_count() or 1)
"""Each in a session of its own, or they would all together get only as much as one fio does (autogroups)."""


RATES = sample(__file__, "cases/throttled.toml")

BURNING = sample(__file__, "cases/burning.toml", cpus=os.cpu_count(), burners=BURNERS)


def answers(lab: Laboratory, load: str, factor: str, *compare: str) -> tuple[Comparison, ...]:
    head, _, rest = load.lstrip().partition("\n")
    common = sample(__file__, "cases/neighbours.toml", compare=", ".join(compare), levels=factor)
    outcome = lab.execute(f"{head}\n{common}{rest}")
    assert outcome.ending == "complete", outcome.ending
    return outcome.summary.comparisons


def test_three_percent_more_are_found_and_equal_rates_are_never_told_apart(lab: Laboratory) -> None:
    levels = {"more": 1030, "first": 1000, "second": 1000}
    rows = [f"{name} = {{ load = 'quiet', rate = {rate}, of = '{name}' }}" for name, rate in levels.items()]
    pairs = (("more", "first", 0.01), ("first", "second", 0.05))
    compare = [f'{{ pairs = [["{a}", "{b}"]], margin = {margin} }}' for a, b, margin in pairs]
    found = {(each.a, each.b): each for each in answers(lab, RATES, "\n".join(rows), *compare)}
    more, equal = found["more", "first"], found["first", "second"]
    assert more.verdict in ("better", "undecided"), more.reason
    assert equal.verdict in ("equivalent", "undecided"), equal.reason
    assert contains(more, 1.03), more.reason
    assert contains(equal, 1.0), equal.reason


def test_a_neighbour_that_burns_cpu_is_never_called_faster(lab: Laboratory) -> None:
    levels = "quiet = { load = 'quiet' }\nburning = { load = 'burn' }"
    (answer,) = answers(lab, BURNING, levels, "{ margin = 0.05 }")
    assert answer.verdict in ("better", "undecided"), answer.reason
    assert answer.high is None or answer.high > 1, answer.reason


def contains(answer: Comparison, truth: float) -> bool:
    """fio's throttle works in whole operations: one of 800 more or less is its own doing."""
    if answer.low is None or answer.high is None:
        return True
    return answer.low - 1 / 800 <= truth <= answer.high + 1 / 800


Compared = tuple[Comparison, dict[str, Difference]]


def compared(lab: Laboratory, a: str, b: str, fio: str, prepare: str = "[]") -> Compared:
    """The comparison, and of why it is so the first three lines, by each metric that they are about."""
    sides = sample(__file__, "cases/two-sides.toml", a=a, b=b, fio=fio, prepare=prepare)
    # A disk's settings are the machine's: no confined command changes them.
    outcome = lab.execute(sides, unconfined=prepare != "[]")
    assert outcome.ending == "complete", outcome.ending
    (comparison,) = outcome.summary.comparisons
    assert comparison.why is not None
    first = comparison.why.differences[:3]
    return comparison, {name.rpartition(":")[2]: d for d in first for name in (d.metric, *d.alike)}


@pytest.mark.needs("root")
def test_fsyncs_are_named_as_flushes_for_each_operation_and_a_setting_as_a_fact(lab: Laboratory) -> None:
    sides = '{ sync = "0", sector = "512" }', '{ sync = "1", sector = "4k" }'
    comparison, first = compared(lab, *sides, 'rw = "write", bs = "256k", direct = 1, fsync = "{side.sync}"')
    found = first["disk.target.flushes"]
    assert (found.a, found.per) == (0.0, "operation") and found.b == pytest.approx(1.0, abs=0.1)
    assert comparison.why is not None
    facts = {fact.name: (fact.a, fact.b) for fact in comparison.why.facts}
    assert facts["logical_block_size of loop"] == ("512", "4096")


@pytest.mark.needs("root")
def test_read_ahead_of_half_the_size_is_named_as_the_size_of_reads(lab: Laboratory) -> None:
    sides = '{ ahead = "256", sector = "512" }', '{ ahead = "128", sector = "512" }'
    prepare = '[["blockdev", "--setra", "{side.ahead}", "{target}"]]'
    _, sizes = compared(lab, *sides, 'rw = "read", bs = "4k"', prepare)
    assert {"disk.target.read_size", "disk.target.reads"} <= sizes.keys()
    found = sizes["disk.target.read_size"]
    assert found.ratio is not None and max(found.ratio, 1 / found.ratio) == pytest.approx(2.0, rel=0.2)
