"""What power cuts left of the set-ups of a run, after its rounds: how many of so many moments broke something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storlab.report.language import format as fmt
from storlab.report.model.tables import Notes, Table

TITLE = "After a power cut"
_CAPTION = "one load per set-up, after the rounds; the interval bounds the share of all moments that would break it"


@dataclass(frozen=True)
class PowerCuts:
    """Those of one set-up. ``kinds``: at how many moments what was broken; ``interval``: of the share of all moments.

    ``why``: why there is no result, else empty; ``notes``: what else to know.
    """

    cell: int
    levels: Mapping[str, str]
    moments: int = 0
    at_risk: int = 0
    broken: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    interval: tuple[float, float] = (0.0, 1.0)
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``2 of 30: 2 lost``."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"{self.broken} of {self.moments}{f': {kinds}' if kinds else ''}"


def power_cut_tables(cuts: Sequence[PowerCuts]) -> tuple[Table, ...]:
    """A line a set-up; none where no power was cut."""
    if not cuts:
        return ()
    notes = Notes()
    factors = tuple(cuts[0].levels) or ("set-up",)
    rows = tuple((*(tuple(each.levels.values()) or (str(each.cell),)), *_cells(each, notes)) for each in cuts)
    found = ("moments that broke it", "95 % interval", "at risk")
    return (Table("Power cuts", (*factors, *found), rows, len(factors), _CAPTION, notes.sentences()),)


def power_cut_facts(cuts: Sequence[PowerCuts]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {"cell": each.cell, "levels": dict(each.levels), "moments": each.moments, "at_risk": each.at_risk}
        | ({"reason": each.why} if each.why else {"broken": each.broken, "interval": list(each.interval)})
        for each in cuts
    ]


def _cells(each: PowerCuts, notes: Notes) -> tuple[str, str, str]:
    if each.why:
        return notes.mark("no result", [each.why]), "", ""
    low, high = each.interval
    return notes.mark(each.sentence, each.notes), f"{fmt.share(low)} to {fmt.share(high)}", str(each.at_risk)
