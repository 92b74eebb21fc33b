"""What programs may rely on in the directories of a run: a line a check, a column a set-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from storlab.base.text import grouped
from storlab.report.document import Table, Tone
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.input import ReportInput, compared_factor
from storlab.report.model.tables import noted

OUTCOMES = ("fail", "unsupported", "pass")
"""The worst first: of several trials and nodes, that is what a program meets."""

_MARKS = {"fail": "✗ fail", "unsupported": "− unsupported", "pass": "✓ pass"}
_TONES: dict[str, Tone] = {"fail": "hit", "unsupported": "missing", "pass": "passed"}
_REASONS = 3  # of one cell of the table; beyond that nobody reads them
_CAPTION = "the worst outcome of all trials and nodes"

Levels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outcome:
    """What came of one check in some trials. ``count``: how often this, of ``times``; ``reasons``: each once."""

    outcome: str
    count: int
    times: int
    reasons: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        return self.outcome == "pass" and not self.reasons


@dataclass(frozen=True)
class CellOutcome:
    """The same in one cell."""

    source: str
    check: str
    cell: int
    levels: Mapping[str, str]
    outcome: Outcome


def cell_outcomes(given: ReportInput) -> list[CellOutcome]:
    levels = {state.cell: state.levels for state in given.summary.cells}
    return [
        CellOutcome(source, check, cell, levels.get(cell, {}), worst(found))
        for (source, check, cell), found in _found(given).items()
    ]


def _found(given: ReportInput) -> dict[tuple[str, str, int], list[tuple[str, str]]]:
    order = {state.cell: number for number, state in enumerate(given.summary.cells)}
    rows = given.checks.select("source", "check", "cell", "outcome", "reason").rows()
    rows.sort(key=lambda row: order.get(row[2], len(order)))
    return grouped(((source, check, cell), (outcome, reason)) for source, check, cell, outcome, reason in rows)


def worst(found: Sequence[tuple[str, str]]) -> Outcome:
    """Of several outcomes with their reasons, at least one."""
    counts = Counter(outcome for outcome, _ in found)
    outcome = next((each for each in OUTCOMES if counts[each]), found[0][0])
    reasons = dict.fromkeys(reason for each, reason in found if each == outcome and reason)
    return Outcome(outcome, counts[outcome], len(found), tuple(reasons))


def conformance_tables(given: ReportInput, *, brief: bool = False) -> list[Table]:
    """One for each workload that looked. ``brief``: checks that passed everywhere in one line."""
    sources = grouped((source, (check, cell, found)) for (source, check, cell), found in _found(given).items())
    return [_table(given, source, rows, brief=brief) for source, rows in sources.items()]


Found = tuple[str, int, list[tuple[str, str]]]


def _table(given: ReportInput, source: str, found: Sequence[Found], *, brief: bool) -> Table:
    columns = _columns(given, found)
    merged: dict[str, dict[Levels, list[tuple[str, str]]]] = {}
    for check, cell, outcomes in found:
        merged.setdefault(check, {}).setdefault(columns[cell], []).extend(outcomes)
    places = list(dict.fromkeys(columns.values()))
    every = {check: {place: worst(each) for place, each in by_place.items()} for check, by_place in merged.items()}
    good = [c for c, by_place in every.items() if all(o.is_plain for o in by_place.values())] if brief else []
    rows = [
        (check, *(_text(by_place.get(place)) for place in places))
        for check, by_place in every.items()
        if check not in good
    ]
    names = tuple(", ".join(words.named(name, level) for name, level in place) or "all cells" for place in places)
    rows += [(fmt.plural(len(good), "other check"), *("✓ pass" for _ in places))] if good else []
    divisible = len(places) > 1
    return Table(source, ("check", *names), tuple(rows), 1, _CAPTION, divisible=divisible, words=names)


def _text(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not looked at"
    often = f" ({outcome.count} of {outcome.times})" if outcome.count < outcome.times else ""
    said = f"{_MARKS.get(outcome.outcome, outcome.outcome)}{often}"
    return noted(said, outcome.reasons[:_REASONS], _TONES.get(outcome.outcome, ""))


def _columns(given: ReportInput, found: Sequence[Found]) -> dict[int, Levels]:
    """Cell → its column: the levels of the factor that is compared, and of those that make a difference."""
    states = {state.cell: state.levels for state in given.summary.cells}
    levels = {cell: tuple(states.get(cell, {}).items()) for _, cell, _ in found}
    kept = list(dict.fromkeys(name for each in levels.values() for name, _ in each))
    for factor in [name for name in kept if name != compared_factor(given.summary)]:
        without = [name for name in kept if name != factor]
        if _agree(found, {cell: _only(each, without) for cell, each in levels.items()}):
            kept = without
    return {cell: _only(each, kept) for cell, each in levels.items()}


def _only(levels: Levels, kept: Sequence[str]) -> Levels:
    return tuple((name, level) for name, level in levels if name in kept)


def _agree(found: Sequence[Found], columns: Mapping[int, Levels]) -> bool:
    together = grouped(((check, columns[cell]), worst(each).outcome) for check, cell, each in found)
    return all(len(set(outcomes)) == 1 for outcomes in together.values())


def check_facts(given: ReportInput) -> Iterator[dict[str, object]]:
    for each in cell_outcomes(given):
        place: dict[str, object] = {"source": each.source, "check": each.check, "cell": each.cell}
        of = each.outcome
        yield place | {"outcome": of.outcome, "count": of.count, "times": of.times, "reasons": list(of.reasons)}
