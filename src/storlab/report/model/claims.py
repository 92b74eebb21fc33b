"""The chapter "claims": what somebody said, with the answer, a line each."""

from __future__ import annotations

from dataclasses import dataclass

from storlab.analysis.claims.data import Claim, ClaimVerdict
from storlab.analysis.summary import Summary
from storlab.report.language import format as fmt
from storlab.report.language import words

MARKS: dict[ClaimVerdict, str] = {"holds": "✓", "does not hold": "✗", "undecided": "?", "missing": "−"}
"""A shape for each answer, so that none depends on colour alone."""

LEAD = "Claims by others, each tested under its name. Undecided means neither: these rounds cannot settle it."


@dataclass(frozen=True)
class ClaimLine:
    """One claim in words. ``style``: the verdict of a comparison whose colour it has."""

    verdict: ClaimVerdict
    mark: str
    name: str
    figure: str
    reason: str
    notes: tuple[str, ...]

    @property
    def style(self) -> str:
        return {"holds": "better", "does not hold": "worse", "undecided": "undecided"}.get(self.verdict, "none")

    @property
    def sentence(self) -> str:
        """All of it but the notes."""
        return " ".join(filter(None, (f"{self.name}: {self.verdict}.", self.figure, self.reason)))


def claim_lines(summary: Summary) -> tuple[ClaimLine, ...]:
    """One for each."""
    return tuple(
        ClaimLine(
            claim.verdict,
            MARKS[claim.verdict],
            claim.name.rstrip(".:"),
            _figure(claim),
            words.stop(claim.reason),
            (*([f"Source: {words.stop(claim.said_by)}"] if claim.said_by else []), *map(words.stop, claim.warnings)),
        )
        for claim in summary.claims
    )


def _figure(claim: Claim) -> str:
    """ "acks.per-request, iscsi ÷ nvme: 11.8× (11.2× to 12.4×, 6 rounds); claimed: more." """
    said = f"claimed: {claim.expected}."
    if claim.value is None:
        return f"{claim.metric}, {_where(claim)}; {said}"
    if claim.right:
        value = fmt.ratio(claim.value, claim.low, claim.high)
        span = fmt.ratio_interval(claim.low, claim.high, claim.value)
    else:
        value = fmt.quantity(claim.value, claim.unit, claim.low, claim.high)
        span = fmt.interval(claim.low, claim.high, claim.unit, claim.value)
    rounds = fmt.plural(claim.rounds, "round")
    return f"{claim.metric}, {_where(claim)}: {value} ({span or 'no interval yet'}, {rounds}); {said}"


def _where(claim: Claim) -> str:
    if not claim.right:
        return words.levels(claim.left)
    both = {name: level for name, level in claim.left.items() if claim.right[name] == level}
    (factor,) = (name for name in claim.left if name not in both)
    sides = f"{words.named(factor, claim.left[factor])} ÷ {words.named(factor, claim.right[factor])}"
    return f"{sides} with {words.levels(both)}" if both else sides
