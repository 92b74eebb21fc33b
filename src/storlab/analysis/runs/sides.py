"""The trials of two sides of a comparison of runs: as pairs where they were interleaved, else as two sides.

Combinations that only one side has are named, and left out of what is pooled.

Pooled over combinations of the other factors, rounds stay the unit: of each round counts the mean of the logarithms of
all combinations, as in ``pairing``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.compare import Question
from storlab.analysis.design import Design
from storlab.analysis.questions import Planned, level_names
from storlab.analysis.stats.pairing import Pairs, Side, Span, pair, pairs_in_time, pool, without_logarithm
from storlab.base.text import grouped
from storlab.findings import About, AnyFinding, Together
from storlab.findings.rounds import LeftOut, NoRound, NotPaired, OneSided, OtherMachines, PairedByTime, RanFirst


@dataclass(frozen=True)
class Sample:
    """One metric of one trial; NaN where the trial has it not. Times in seconds."""

    run: int
    round: int  # of all runs, each with numbers of its own where there are several on a side
    value: float
    start: float | None
    end: float | None
    machine: str
    interleaved: bool  # with the other trials of its run
    host: str = ""  # a name for the machine, in whatever boot; empty where nobody knows


Place = tuple[int, int]
"""Run and round of a trial, as samples have them."""


_ALL_DUE: tuple[Mapping[int, int], Mapping[int, int]] = ({}, {})


@dataclass(frozen=True, eq=False)
class Sides:
    """``pairs`` of ``a`` and ``b``; ``None`` where ``apart`` says why their rounds are none.

    ``problem``: why the two sides have no ratio, though both are there; only where they are no pairs. ``shrunk``:
    by how much the ½ of counts moves any of the logarithms, as of ``Side``. ``elsewhere``: ``b`` was not measured where
    ``a`` was, so nothing tells the set-ups from the machines. ``refused``: there are pairs, but of different machines.
    """

    a: Side
    b: Side
    pairs: Pairs | None = None
    apart: AnyFinding | None = None
    problem: AnyFinding | None = None
    warnings: tuple[AnyFinding, ...] = ()
    shrunk: float = 0.0
    elsewhere: bool = False
    refused: bool = False


def sides(
    names: tuple[str, str],
    a: Sequence[Sample],
    b: Sequence[Sample],
    fixed: Mapping[int, RanFirst],
    failed: tuple[Sequence[Place], Sequence[Place]] = ((), ()),
    rests_after: tuple[Mapping[int, int], Mapping[int, int]] = _ALL_DUE,
    counts: bool = False,
) -> Sides:
    """The two sides of one combination; ``names`` as the reader knows them.

    ``fixed``: of runs in which one of the two mostly ran first. ``failed``: trials of each side.
    ``rests_after``: of each side, by run, the last round in which it was due; later ones are pairs of nothing.
    ``counts``: as of ``Side``.
    """

    def last(run: int) -> float:
        return min(rests.get(run, math.inf) for rests in rests_after)

    whole = _side(names[0], a, counts), _side(names[1], b, counts)
    gone = zip(names, failed, strict=True)
    lost = tuple(LeftOut("failed trials", count=len(of), side=name) for name, of in gone if of)
    interleaved = {s.run for s in a if s.interleaved} & {s.run for s in b if s.interleaved}
    together = interleaved - fixed.keys()
    if interleaved and not together:
        found = tuple(dict.fromkeys(fixed[run] for run in sorted(interleaved)))
        return Sides(*whole, apart=found[0] if len(found) == 1 else Together(found), warnings=lost)
    if together:
        if (of_machines := _of_different_machines(a, b, together)) is not None:
            return Sides(*whole, apart=of_machines, warnings=lost, elsewhere=True, refused=True)
        inner = (
            _side(
                name,
                [s for s in of if s.run in together and s.round <= last(s.run)],
                counts,
                [round_ for run, round_ in gone if run in together and round_ <= last(run)],
            )
            for name, of, gone in zip(names, (a, b), failed, strict=True)
        )
        left = sum(s.run not in together for s in (*a, *b))
        gone_too = LeftOut("one side" if interleaved == together else "one side or order", count=left)
        hosts = {s.round: s.host for s in a if s.run in together}
        several = hosts if len(set(hosts.values())) > 1 else {}
        return Sides(*whole, replace(pair(*inner), hosts=several), warnings=(gone_too,) if left else ())
    if not a or not b:
        return Sides(*whole, apart=NotPaired("one side"), warnings=lost)
    hosts_a, hosts_b = ({s.host for s in of if s.host} for of in (a, b))
    if hosts_a and hosts_b and hosts_a != hosts_b:
        machines = OtherMachines((tuple(sorted(hosts_a)), tuple(sorted(hosts_b))), names)
        return Sides(*whole, apart=machines, warnings=lost, elsewhere=True)
    couples = NotPaired("failed") if lost else pairs_in_time([_span(s) for s in a], [_span(s) for s in b])
    if isinstance(couples, NotPaired):
        return Sides(*whole, apart=couples, warnings=lost)
    rounds = np.array([a[of_a].round for of_a, _ in couples], dtype=np.int64)  # as the first side counts them
    in_time = (
        Side(name, rounds, np.array([of[couple[which]].value for couple in couples]), counts=counts)
        for which, (name, of) in enumerate(zip(names, (a, b), strict=True))
    )
    return Sides(*whole, pair(*in_time), warnings=(PairedByTime(),))


def _of_different_machines(a: Sequence[Sample], b: Sequence[Sample], runs: Set[int]) -> AnyFinding | None:
    """Why the rounds of these runs can't be put together; ``None`` if each had the same machines."""
    hosts = grouped((s.run, s.host) for s in (*a, *b) if s.run in runs)
    sets = dict.fromkeys(frozenset(each) for each in hosts.values())
    if len(sets) > 1:
        return OtherMachines(tuple(tuple(sorted(each)) for each in sets))
    if len(hosts) > 1 and "" in next(iter(sets)):
        return NotPaired("runs without machines")
    return None


def pooled(parts: Sequence[Sides], combinations: Sequence[str]) -> Sides:
    """One answer from all ``combinations``, by name; pairs where every part has them."""
    said = tuple(dict.fromkeys(warning for part in parts for warning in part.warnings))
    if any(part.refused for part in parts):
        return next(part for part in parts if part.refused)
    elsewhere = any(part.elsewhere for part in parts)
    apart = next((part.apart for part in parts if part.pairs is None), None)
    couples = [
        replace(part.pairs, problem=About("combinations", (name,), part.pairs.problem))
        if part.pairs.problem
        else part.pairs
        for name, part in zip(combinations, parts, strict=True)
        if part.pairs is not None
    ]
    both = [[part.a for part in parts], [part.b for part in parts]]
    if apart is None:
        return Sides(both[0][0], both[1][0], pool(couples, combinations), warnings=said)
    said = tuple(dict.fromkeys(warning for part in parts if part.pairs is None for warning in part.warnings))
    for name, one in (each for of in both for each in zip(combinations, of, strict=True)):
        if found := without_logarithm(one.name, one.rounds, one.logged):
            return Sides(both[0][0], both[1][0], apart=apart, problem=About("combinations", (name,), found))
    (a, left_a), (b, left_b) = map(_mean_side, both)
    for one in (a, b):
        if len(one.rounds) == 0:
            return Sides(a, b, apart=apart, problem=NoRound(one.name))
    return Sides(a, b, apart=apart, warnings=(*said, *left_a, *left_b), elsewhere=elsewhere)


def _mean_side(of: Sequence[Side]) -> tuple[Side, tuple[LeftOut, ...]]:
    rounds = of[0].rounds
    for one in of[1:]:
        rounds = np.intersect1d(rounds, one.rounds, assume_unique=True)
    left = sorted({number for one in of for number in one.rounds.tolist()} - set(rounds.tolist()))
    logs = [np.log(one.logged[np.isin(one.rounds, rounds, assume_unique=True)]) for one in of]
    said = (LeftOut("incomplete", tuple(left), side=of[0].name),) if left else ()
    return Side.of_logarithms(of[0].name, rounds, np.mean(logs, axis=0), of[0].counts), said


def _side(name: str, samples: Sequence[Sample], counts: bool, failed: Sequence[int] = ()) -> Side:
    ordered = sorted(samples, key=lambda s: s.round)
    rounds, lost = (np.array(numbers, dtype=np.int64) for numbers in ([s.round for s in ordered], sorted(failed)))
    return Side(name, rounds, np.array([s.value for s in ordered]), lost, counts)


def _span(sample: Sample) -> Span:
    return Span(sample.start, sample.end, sample.machine)


def without(item: Planned, lone: Sequence[Planned]) -> Planned:
    """``item``, with a warning where it is pooled over fewer combinations than there are."""
    q = item.question
    left = len({tuple(x.question.within.items()) for x in lone if (x.question.a, x.question.b) == (q.a, q.b)})
    if not q.pooled or not left:
        return item
    return replace(item, warnings=(*item.warnings, LeftOut("one combination", count=left)))


def one_sided(design: Design, factor: str, levels: Sequence[str], metrics: Sequence[str]) -> list[Planned]:
    """A comparison without an answer for each combination that one side has and the other has not."""
    by_level: dict[str, dict[tuple[tuple[str, str], ...], int]] = {level: {} for level in levels}
    for cell, chosen in design.cells:
        by_level[chosen[factor]][tuple((name, level) for name, level in chosen.items() if name != factor)] = cell
    found = []
    first = levels[0]
    for level in levels[1:]:
        both = dict.fromkeys([*by_level[first], *by_level[level]])
        for within in both:
            has = [name for name in (first, level) if within in by_level[name]]
            if len(has) == 1:
                lacks = level if has == [first] else first
                problem = OneSided(level_names(dict(within)), has[0], lacks)
                cell = by_level[has[0]][within]
                asked = Question(factor, level, first, dict(within), False, "", "", "", "neither")
                each = (replace(asked, metric=name) for name in metrics)
                optional = design.is_optional({**dict(within), factor: lacks})
                found += [Planned(q, ((cell, cell),), problem, counted=False, optional=optional) for q in each]
    return found
