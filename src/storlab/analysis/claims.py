"""Whether claims hold, by the evidence of comparisons that are judged anyway.

*More* and *less* follow their comparison: they hold where it differs that way, by closed testing over the family,
and do not hold where it differs the other way or is equivalent. Claims with a limit, and *equivalent*, are about
whether the true ratio lies beyond a limit: either answer needs the evidence that one statement among all
comparisons (or among all such claims, if these are more) needs, so that any of them is false with a chance of at
most α. At most one of the two answers can be false.

A claim about a value is answered by the interval of the typical value over rounds, by ranks and by signs,
Bonferroni's correction over all cells and metrics that such claims are about. That supposes that one round does not
tell of the next: no order is drawn between a cell and a number.

Nothing is answered where combinations that were pooled say different things, nor where a failed round might have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storlab.analysis.compare import failed_of, history_of
from storlab.analysis.data import Claim, ClaimVerdict, Expected
from storlab.analysis.design import ClaimSpec, Design
from storlab.analysis.judging import Case
from storlab.analysis.questions import Catalogue, Planned, level_names, matching, plan
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.checks import independence_lacks
from storlab.analysis.stats.horizon import History
from storlab.analysis.stats.pairing import Rounds
from storlab.analysis.summary import Comparison
from storlab.analysis.verdict import (
    Failed,
    Rules,
    Span,
    beyond,
    evidence_of,
    fewest_for_limits,
    least_rounds,
    proved_side,
    safe_exp,
    span,
    span_of_limits,
)
from storlab.base.levels import amount_in
from storlab.findings import AnyFinding
from storlab.findings.answers import ClaimAnswer, ClaimContradicted, ClaimRange, ClaimUnanswered, LostRounds
from storlab.findings.rounds import Emulated, NoMetric, NoTrial, TooFewRounds, Unsupported
from storlab.metrics import Key

_NONE: Floats = np.empty(0, dtype=np.float64)

Series = Mapping[tuple[int, Key], tuple[Rounds, Floats]]
"""Rounds and values of one metric in one cell; NaN in done rounds without it."""


@dataclass(frozen=True)
class Judged:
    """What a claim's answer rests on: all comparisons of the study, and the series of its cells.

    ``limits``, ``values``: how many answers there are of either kind, to be wrong about.
    ``unsteady``: why none is given, where the study asks for steady state.
    """

    cases: Sequence[Case]
    comparisons: Sequence[Comparison]
    catalogue: Catalogue
    series: Series
    failed: Mapping[int, Rounds]
    limits: int = 0
    values: int = 0
    unsteady: AnyFinding | None = None


def answered(design: Design, by: Judged) -> tuple[Claim, ...]:
    """One for each claim, or one for each metric or cell where a claim is about several."""
    limited = [each for each in design.claims if each.compared() and (each.word == "equivalent" or each.limit != 1)]
    by = replace(
        by,
        limits=sum(len(_planned(each, design, by.catalogue)) for each in limited),
        values=sum(
            max(1, len(matching(each.metric or design.primary, by.catalogue.metrics.get(cell, {}))))
            for each in design.claims
            for cell in _cells(each, design)
        ),
    )
    found = tuple(each for spec in design.claims for each in _answers(spec, design, by))
    if by.unsteady is None:
        return found
    return tuple(c if c.verdict == "missing" else replace(c, verdict="undecided", reason=by.unsteady) for c in found)


def fewest_rounds_of_values(design: Design) -> int:
    """Rounds that claims about values need at least, as far as that is known before a run."""
    answers = sum(len(_cells(each, design)) for each in design.claims)
    return max(design.min_rounds, fewest_for_limits(math.log(2 * max(1, answers) / (1 - design.confidence))))


def value_keys(design: Design, catalogue: Catalogue) -> Iterator[tuple[int, str, str]]:
    for spec in design.claims:
        for cell in _cells(spec, design):
            for source, metric in matching(spec.metric or design.primary, catalogue.metrics.get(cell, {})):
                yield cell, source, metric


def _answers(spec: ClaimSpec, design: Design, by: Judged) -> Iterator[Claim]:
    if not design.compared:
        yield _missing(spec, design, ClaimUnanswered("not interleaved"))
    elif spec.absent:
        yield _missing(spec, design, spec.absent)
    elif spec.native and design.emulated and not spec.right:
        yield replace(_missing(spec, design, Emulated()), verdict="undecided")
    elif spec.factor:
        yield from _of_comparisons(spec, design, by)
    else:
        yield from _of_values(spec, design, by)


def _missing(spec: ClaimSpec, design: Design, why: AnyFinding) -> Claim:
    metric = spec.metric or design.primary
    return Claim(spec.name, spec.source, "missing", why, metric, "", "", spec.left, spec.right, _expected(spec))


def _expected(spec: ClaimSpec, ends: tuple[float | None, float | None] = (None, None)) -> Expected:
    return Expected(spec.word, spec.limit, *ends, spec.margin)


def _of_comparisons(spec: ClaimSpec, design: Design, by: Judged) -> Iterator[Claim]:
    known = {case.item.question.key: index for index, case in enumerate(by.cases)}
    found = False
    for item in _planned(spec, design, by.catalogue):
        q = item.question
        index = known.get(q.key, known.get(q.mirrored))
        if index is not None:
            found = True
            yield _of_comparison(spec, design, by, index, mirrored=q.key not in known)
    if not found:
        yield _missing(spec, design, ClaimUnanswered("no pair"))


def _planned(spec: ClaimSpec, design: Design, catalogue: Catalogue) -> list[Planned]:
    """The comparisons that a claim is about: one for each metric that its name matches."""
    asked = spec.compared()
    assert asked is not None
    found = plan(replace(design, comparisons=(asked,), claims=()), catalogue)
    whole = [item for item in found if item.question.pooled] or found  # all combinations are one claim
    return list({(item.question.source, item.question.metric): item for item in whole}.values())


def _of_comparison(spec: ClaimSpec, design: Design, by: Judged, index: int, *, mirrored: bool) -> Claim:
    case, comparison = by.cases[index], by.comparisons[index]
    q, pairs = case.item.question, case.pairs
    claim = replace(
        _missing(spec, design, comparison.reason),
        metric=q.metric,
        source=q.source,
        unit=q.unit,
        rounds=comparison.rounds,
        warnings=comparison.warnings if comparison.rounds >= design.min_rounds else (),
    )
    if comparison.verdict == "missing":
        return claim
    # A comparison that is also asked for by itself may be judged although the claim is not to be.
    described = Emulated() if spec.native and design.emulated else comparison.described
    if described is not None:
        return replace(claim, verdict="undecided", reason=described)
    if case.item.problem or (pairs is not None and pairs.problem):
        return claim
    if pairs is None or len(pairs.log_ratios) == 0:
        return claim
    sign = -1 if mirrored else 1
    evidence = _Evidence(
        sign * pairs.log_ratios,
        {name: sign * part for name, part in pairs.parts.items()},
        failed_of(pairs),
        case.needed,
        Rules(
            alpha=1 - design.confidence,
            margin=spec.margin or q.margin,
            better="neither",
            min_rounds=design.min_rounds,
            family=max(case.family, by.limits),
            shrunk=pairs.shrunk,
        ),
        comparison.verdict == "equivalent",
        history_of(
            pairs, design.bet, "neither", case.tuned, 0 if pairs.failed_a | pairs.failed_b else sign * case.proved
        ),
    )
    verdict, reason, seen = evidence.answer(spec)
    return replace(
        claim,
        verdict=verdict,
        reason=reason,
        value=safe_exp(seen.typical),
        low=safe_exp(seen.low) if seen.bounded else None,
        high=safe_exp(seen.high) if seen.bounded else None,
        confidence=1 - 1 / seen.threshold,
    )


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Log ratios left ÷ right with all by which a claim on them is judged. ``alike``: whether they are equivalent."""

    ratios: Floats
    parts: Mapping[str, Floats]
    failed: Failed
    needed: float
    rules: Rules
    alike: bool
    history: History | None = None

    def answer(self, spec: ClaimSpec) -> tuple[ClaimVerdict, AnyFinding, Span]:
        plain = spec.word != "equivalent" and spec.limit == 1
        if plain and not self.alike:
            seen = span(self.ratios, self.needed, self.history)
            fewest = least_rounds(math.log(2 * self.needed), self.history)
        else:
            seen = span_of_limits(self.ratios, self.rules.one_sided)
            fewest = fewest_for_limits(self.rules.one_sided)
        fewest = max(self.rules.min_rounds, fewest)
        if seen.n < fewest:
            return "undecided", TooFewRounds(seen.n, fewest, "claim"), seen
        if spec.word == "equivalent":
            verdict, reason = self._equivalent()
        elif plain:
            verdict, reason = self._differs(1 if spec.word == "more" else -1)
        else:
            verdict, reason = self._beyond(math.log(spec.limit), 1 if spec.word == "more" else -1, spec.limit)
        if verdict != "undecided" and (against := self._against(spec, verdict)):
            return "undecided", ClaimContradicted(tuple(against)), seen
        return verdict, reason, seen

    def _differs(self, side: int) -> tuple[ClaimVerdict, ClaimAnswer]:
        if self.alike:
            return "does not hold", ClaimAnswer("equivalent", self.rules.margin)
        needed, lost = math.log(2 * self.needed), self.failed.a + self.failed.b
        kept = proved_side(self.ratios, self.history)
        for sign in (side, -side):
            enough = sign == kept or evidence_of(self.ratios, sign, needed, lost, self.history) >= needed
            if enough and sign * float(self.ratios.mean()) > 0:
                return "holds" if sign == side else "does not hold", ClaimAnswer("above" if sign > 0 else "below")
        return "undecided", ClaimAnswer("open")

    def _beyond(self, edge: float, side: int, limit: float) -> tuple[ClaimVerdict, ClaimAnswer]:
        for sign in (side, -side):
            if beyond(self.ratios, edge, sign, self.rules, self.failed):
                answer = ClaimAnswer("above" if sign > 0 else "below", limit)
                return "holds" if sign == side else "does not hold", answer
        return "undecided", ClaimAnswer("open", limit)

    def _equivalent(self) -> tuple[ClaimVerdict, ClaimAnswer]:
        margin, edge = self.rules.margin, math.log1p(self.rules.margin)
        if edge > 0 and all(beyond(self.ratios, -s * edge, s, self.rules, self.failed) for s in (1, -1)):
            return "holds", ClaimAnswer("within", margin)
        either = replace(self.rules, alpha=self.rules.alpha / 2)  # of two ways in which it would be wrong
        if any(beyond(self.ratios, s * edge, s, either, self.failed) for s in (1, -1)):
            return "does not hold", ClaimAnswer("beyond", margin)
        return "undecided", ClaimAnswer("open within", margin)

    def _against(self, spec: ClaimSpec, verdict: ClaimVerdict) -> list[str]:
        edge = math.log1p(self.rules.margin)
        low, high = (-edge, edge) if spec.word == "equivalent" else (math.log(spec.limit), math.inf)
        if spec.word == "less":
            low, high = -math.inf, math.log(spec.limit)
        own = {name: span(part, self.needed) for name, part in self.parts.items() if len(part)}
        if verdict == "holds":
            return [name for name, each in own.items() if each.high < low or each.low > high]
        return [name for name, each in own.items() if low < each.low and each.high < high]


def _cells(spec: ClaimSpec, design: Design) -> list[int]:
    if spec.right or spec.absent:
        return []
    return [cell for cell, levels in design.cells if spec.left.items() <= levels.items()]


def _of_values(spec: ClaimSpec, design: Design, by: Judged) -> Iterator[Claim]:
    """One for each cell and metric; where there are several cells, each with all its levels."""
    levels, cells = dict(design.cells), _cells(spec, design)
    if not cells:
        yield _missing(spec, design, ClaimUnanswered("no cell"))
    for cell in cells:
        here = replace(spec, left=levels[cell]) if len(cells) > 1 else spec
        if why := by.catalogue.unsupported.get(cell):
            yield _missing(here, design, Unsupported(((level_names(levels[cell]), why),)))
            continue
        metrics = matching(spec.metric or design.primary, by.catalogue.metrics.get(cell, {}))
        for key in metrics:
            yield _of_value(here, design, by, (cell, key), metrics[key].unit)
        if not metrics:
            waiting = cell not in by.catalogue.metrics
            yield _missing(here, design, NoTrial() if waiting else NoMetric(spec.metric or design.primary))


def _of_value(spec: ClaimSpec, design: Design, by: Judged, of: tuple[int, Key], unit: str) -> Claim:
    cell, (source, metric) = of
    _, values = by.series.get(of, (None, _NONE))
    claim = replace(_missing(spec, design, NoTrial()), verdict="undecided", metric=metric, source=source, unit=unit)
    claim = replace(claim, rounds=len(values), settled=False)
    low, high = (amount_in(end, unit) for end in spec.between)
    ends = (None if math.isinf(low) else low), (None if math.isinf(high) else high)
    claim = replace(claim, expected=_expected(spec, ends))
    lost = len(by.failed.get(cell, ())) + sum(not math.isfinite(value) for value in values.tolist())
    if lost:
        return replace(claim, reason=LostRounds(lost), settled=True)
    if len(values) == 0:
        return replace(claim, verdict="missing", reason=NoTrial())
    needed = math.log(2 * by.values / (1 - design.confidence))
    seen = span_of_limits(values, needed)
    claim = replace(
        claim,
        value=seen.typical,
        low=seen.low if seen.bounded else None,
        high=seen.high if seen.bounded else None,
        confidence=1 - 1 / seen.threshold,
    )
    fewest = max(design.min_rounds, fewest_for_limits(needed))
    if seen.n < fewest:
        return replace(claim, reason=TooFewRounds(seen.n, fewest, "claim"))
    lacks = independence_lacks([values])
    sure = not lacks or not lacks.need
    if lacks:
        claim = replace(claim, confidence=None)
    if low <= seen.low and seen.high <= high and seen.bounded and low <= seen.mean <= high:
        return replace(claim, verdict="holds", reason=ClaimRange("within", *ends, unit, lacks), settled=sure)
    if (seen.high < low and seen.mean < low) or (seen.low > high and seen.mean > high):
        reason = ClaimRange("outside", *ends, unit, lacks)
        return replace(claim, verdict="does not hold", reason=reason, settled=sure)
    return replace(claim, reason=ClaimRange("reaches beyond", *ends, unit))
