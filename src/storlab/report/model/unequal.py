"""What was measured under settings that nobody declared, as the sentences that a report begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storlab.analysis.summary import CellState
from storlab.analysis.unequal import Held, Unequal
from storlab.grouping import grouped
from storlab.report.language import format as fmt
from storlab.report.language import words

_MOST = 4  # sentences of one kind, settings of one sentence, and places of one value
_LONGEST = 120  # characters of a value
_LEADS = {
    "nodes": "Declared alike, but not set alike",
    "trials": "Not set alike in all trials",
    "levels": "Also differs, though the study does not say so",
    "runs": "Not set alike in all runs",
}
_SO = "What is compared may differ for this reason alone"


def unequal_sentences(found: Sequence[Unequal], cells: Iterable[CellState]) -> tuple[str, ...]:
    """One for all settings that differ in the same way, of each kind a few."""
    levels = {cell.cell: words.levels(cell.levels) for cell in cells}
    alike = grouped(((each.among, each.thing, tuple(h.trials + h.nodes for h in each.held)), each) for each in found)
    said = grouped((among, _sentence(those, levels)) for (among, _, _), those in alike.items())
    return tuple(sentence for sentences in said.values() for sentence in _first(sentences))


def _first(sentences: Sequence[str]) -> list[str]:
    rest = len(sentences) - _MOST
    more = [f"{fmt.plural(rest, 'further set')} of settings differ in this way; JSON has all of them."]
    return [*sentences[:_MOST], *(more if rest > 0 else [])]


def _sentence(those: Sequence[Unequal], levels: dict[int, str]) -> str:
    first, rest = those[0], len(those) - _MOST
    settings = [each.setting for each in those[:_MOST]] + ([f"{rest} more"] if rest > 0 else [])
    values = [words.listed([_short(each.held[at].value) for each in those[:_MOST]]) for at in range(len(first.held))]
    held = [f"{value} {_where(first, each, levels)}" for value, each in zip(values, first.held, strict=True)]
    of = "" if first.thing == "kernel" else f" of {first.thing}"
    verb = "is" if len(those) == 1 else "are"
    return f"{_LEADS[first.among]}: {words.listed(settings)}{of} {verb} {'; '.join(held)}. {_SO}."


def _short(value: str) -> str:
    return value if 0 < len(value) <= _LONGEST else f"{value[:_LONGEST]}…" if value else "empty"


def _where(of: Unequal, held: Held, levels: dict[int, str]) -> str:
    match of.among:
        case "nodes" | "runs":
            return f"{'on' if of.among == 'nodes' else 'in'} {_some(held.nodes)}"
        case "trials":
            return f"in {'trial' if len(held.trials) == 1 else 'trials'} {_some(list(map(str, held.trials)))}"
        case "levels":
            return f"with {_some([levels.get(cell) or f'cell {cell}' for cell in held.cells])}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _MOST
    return words.listed(names) if rest <= 0 else f"{', '.join(names[:_MOST])} and {rest} more"
