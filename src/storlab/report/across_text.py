"""Runs compared, for the terminal and for logs: what differs first, then its numbers, then what came of gates."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.rule import Rule
from rich.text import Text

from storlab.analysis.across_runs import RunComparison, RunsCompared
from storlab.report import across, words
from storlab.report.across_tables import ratio_tables, variability_tables
from storlab.report.terminal import STYLES, WIDTH, bullet, foreign, in_columns, section

_MOST = 24  # answers that are told one by one; the table has all
_OUTCOME_STYLES = {"hit": "bold red", "passed": "green", "unknown": "yellow"}


def render_text(given: RunsCompared, width: int = WIDTH) -> str:
    """Plain text without colour, ``width`` columns wide."""
    return in_columns(TerminalComparison(given), width)


class TerminalComparison:
    """The same for any Rich console, as wide as that is."""

    def __init__(self, given: RunsCompared) -> None:
        self._given = given

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _parts(self._given, options.max_width)


def _parts(given: RunsCompared, width: int) -> Iterator[RenderableType]:
    yield foreign(across.title(given), "bold")
    for caution in given.cautions:
        yield bullet("!", "bold yellow", caution)
    for place, group in _told(given).items():
        yield Text()
        heading = foreign(place, "bold")
        if better := words.direction(group[0].comparison.better):
            heading.append(f"  {better}", "dim")
        yield heading
        for c in group:
            yield from _answer(given, c)
    if why := across.why_described(given):
        yield Text()
        for sentence in why:
            yield bullet(across.DESCRIBED, "bold", sentence)
    tables = ratio_tables(given)
    if sum(len(table.rows) for table in tables) > 1:
        yield from section("Compared", tables, width)
    missing = [c for c in given.comparisons if c.basis == "none"]
    if missing:
        yield Text()
        yield Rule(Text("Not compared", "bold"), align="left", style="dim")
        for sentence in across.not_compared(given):
            yield bullet(across.MISSING, "yellow", sentence)
        for told in dict.fromkeys((r.gate, r.outcome, r.sentence) for c in missing for r in c.gates):
            yield _gate(*told, indent=2)
    yield from section("Variability", variability_tables(given), width)
    if given.method:
        yield Text()
        yield foreign(given.method, "dim")
    yield Text()
    yield foreign(across.outcome(given), _outcome_style(given))


def _told(given: RunsCompared) -> dict[str, list[RunComparison]]:
    """What is said in sentences: everything, or of many answers those that a reader must not overlook."""
    found = across.groups(given)
    if sum(map(len, found.values())) <= _MOST:
        return found
    chosen = {place: [c for c in group if _stands_out(c)] for place, group in found.items()}
    return {place: group for place, group in chosen.items() if group}


def _stands_out(c: RunComparison) -> bool:
    answer = c.comparison
    return answer.pooled or answer.verdict in ("better", "worse") or any(r.outcome == "hit" for r in c.gates)


def _answer(given: RunsCompared, c: RunComparison) -> Iterator[RenderableType]:
    if c.basis == "interleaved":
        yield bullet(across.mark(c), STYLES[c.comparison.verdict], words.sentence(c.comparison), indent=2)
    else:
        yield bullet(across.mark(c), "bold", across.described(c), indent=2)
    if varying := across.varying_of(given, c):
        yield bullet(across.DESCRIBED, "bold", across.varies(varying), indent=4)
    for warning in c.comparison.warnings:
        yield bullet("!", "yellow", words.stop(warning), indent=4)
    for result in c.gates:
        yield _gate(result.gate, result.outcome, result.sentence, indent=4)


def _gate(gate: str, outcome: str, sentence: str, indent: int) -> RenderableType:
    mark = {"hit": "✗", "passed": "✓"}.get(outcome, "?")
    said = f"{gate} {across.OUTCOMES[outcome]}. {sentence}"
    return bullet(mark, _OUTCOME_STYLES[outcome], said, indent, "bold red" if outcome == "hit" else "")


def _outcome_style(given: RunsCompared) -> str:
    if given.failed:
        return "bold red"
    return "bold green" if any(c.gates for c in given.comparisons) else "bold"
