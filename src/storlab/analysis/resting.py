"""Which cells a run need not run again: those that no open comparison is about.

A comparison whose cells rest gets no further rounds, so its evidence stays what it is. The decision to let it rest is
made after a round, by what is known then, and evidence that is stopped in such a way is as valid as if it went on
(a martingale that is stopped is one). So it takes part in closed testing with what it had, and is judged as it was when
it came to rest (``judging``): what was decided stays decided, whatever later rounds bring elsewhere.

Cells that no comparison is about go on: nothing says when enough is known of them. Nor do those of a study with nothing
but sweeps rest: what is said of a whole curve, such as where it bends, compares its points round by round. And what
waits for steady state waits for all cells together, since each of them wears the same device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storlab.analysis.stopping import Rule, is_satisfied
from storlab.analysis.summary import CellState, Comparison, Summary
from storlab.findings.runs import Rested
from storlab.grouping import grouped


def to_rest(summary: Summary, rule: Rule) -> dict[int, Rested]:
    """Cells that are due no longer after the rounds of ``summary``, and of each why."""
    if rule.until in ("rounds", "points", "steady") or summary.rounds_done < rule.min_rounds:
        return {}
    about = grouped((cell, c) for c in summary.comparisons for cell in cells_of(c, summary.cells))
    return {cell: _why(those, rule) for cell, those in about.items() if not any(_is_open(c, rule) for c in those)}


def cells_of(comparison: Comparison, cells: Sequence[CellState]) -> Iterator[int]:
    sides = grouped((_elsewhere(cell, comparison.factor), cell) for cell in cells)
    for levels, those in sides.items():
        found = {cell.levels.get(comparison.factor, ""): cell.cell for cell in those}
        if comparison.within.items() <= dict(levels).items():
            both = comparison.a in found and comparison.b in found
            yield from (found[comparison.a], found[comparison.b]) if both else ()


def _elsewhere(cell: CellState, factor: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, level) for name, level in cell.levels.items() if name != factor)


def _is_open(comparison: Comparison, rule: Rule) -> bool:
    if comparison.described or (comparison.settled and comparison.ratio is None):  # there never can be an answer
        return False
    if rule.until == "gates" and not comparison.settled:  # as long as it may yet be decided
        return not is_satisfied(comparison, rule) or any(gate.gate == "undecided" for gate in comparison.gates)
    return not is_satisfied(comparison, rule)


def _why(comparisons: Sequence[Comparison], rule: Rule) -> Rested:
    having = [c.ratio is not None for c in comparisons]
    if not any(having):
        return Rested("no answer")
    if rule.until == "gates":
        return Rested("gates")
    if rule.until == "precision":
        return Rested("precision", not all(having), rule.precision)
    return Rested("decided", not all(having))
