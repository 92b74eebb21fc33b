"""A report for the terminal: verdicts, then their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from storlab.analysis.summary import GateResult
from storlab.report.formats.drawing import STYLES, bullet, drawn_table, foreign, in_columns, parts_of, section
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.claims import ClaimLine
from storlab.report.model.gates import gate_sentence
from storlab.report.model.input import ReportInput
from storlab.report.model.power_cuts import TITLE as POWER_CUTS
from storlab.report.model.questions import SPREAD
from storlab.report.model.steady import TITLE as STEADY_STATE
from storlab.report.model.tables import Table, without_notes
from storlab.report.model.view import VerdictGroup, VerdictLine, View, open_lines
from storlab.report.model.why import EVIDENCE

WIDTH = 80


def render_text(given: ReportInput, width: int = WIDTH, *, full: bool = False) -> str:
    """The report as plain text without colour, ``width`` columns wide."""
    return in_columns(TerminalReport(given, full=full), width)


def render_full(given: ReportInput) -> str:
    """As ``render_text``, with every table that there is."""
    return render_text(given, full=True)


class TerminalReport:
    """The report for any Rich console, as wide as that is: two screens of it, or all that there is.

    Foreign text is in ``Text`` objects, so its brackets are no markup.
    """

    def __init__(self, given: ReportInput, *, full: bool = False) -> None:
        self._shown, self._full = View(given), full

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        first = Group(*_first(self._shown, width, self._full))
        left = _LINES - _height(first, width)
        yield first
        hidden = []
        for name, parts in _further(self._shown, width, self._full):
            group = Group(*parts)
            if not group.renderables:
                continue
            height = _height(group, width)
            if self._full or height <= left:
                left -= height
                yield group
            else:
                hidden.append(name)
        if not self._full and "latency" not in hidden and len(self._shown.latencies) > len(self._shown.latencies_brief):
            hidden.append("latencies of other operations")
        if hidden:
            yield Text()
            yield foreign(f"More: {words.listed(hidden)}; see `storlab report RUN --full` or the HTML report.", "dim")


_LINES = 92  # of what is shown without being asked for: two screens, with room for the shell's own lines
_MOST_SENTENCES = 8  # of a kind
_ROWS = 20  # of a matrix: more are in the full report


def _height(renderable: RenderableType, width: int) -> int:
    return in_columns(renderable, width).count("\n")


def _first(shown: View, width: int, full: bool) -> Iterator[RenderableType]:
    """The answer and the numbers that it rests on."""
    yield foreign(shown.title, "bold")
    for caution in shown.cautions:
        yield bullet("!", "bold yellow", caution, style="bold yellow")
    if shown.facts_line:
        yield foreign(shown.facts_line, "dim")
    for note in shown.platform_notes:
        yield bullet("!", "yellow", note)
    yield Text()
    yield foreign(shown.answer, "bold")
    for table in shown.matrix:
        yield from _matrix(table, width, full)
    if full or not shown.matrix:
        for group in shown.verdicts:
            yield Text()
            yield from _question(group, width, full)
        if not full and (lines := open_lines(shown.verdicts)):
            yield Text()
            for mark, sentence in lines:
                yield bullet(mark, STYLES["undecided"], sentence)
    else:
        yield from (bullet_of for group in shown.verdicts for bullet_of in _gates(group))
    if shown.not_compared:
        yield Text()
        yield from _bullets("−", shown.not_compared, full)
    yield Text()
    yield foreign(" ".join(part for part in (shown.overview, shown.resting, shown.certainty) if part), "dim")
    if shown.claims:
        yield from _claims(shown.claims)
    if shown.warnings:
        yield Text()
        yield from _bullets("!", shown.warnings, full)


def _bullets(mark: str, sentences: Sequence[str], full: bool) -> Iterator[RenderableType]:
    shown = sentences if full or len(sentences) <= _MOST_SENTENCES + 1 else sentences[:_MOST_SENTENCES]
    for sentence in shown:
        yield bullet(mark, "yellow", sentence)
    if (more := len(sentences) - len(shown)) > 0:
        yield bullet(mark, "yellow", f"and {more:,} more: `storlab report RUN --full` has all")


def _further(shown: View, width: int, full: bool) -> Iterator[tuple[str, Iterator[RenderableType]]]:
    """What follows as far as there is room, what says most first; each with its name."""
    yield "incomplete cells", _absent(shown)
    yield "steady state", section(STEADY_STATE, shown.steady, width)
    yield "sweeps", _sweeps(shown, width)
    yield "power cuts", section(POWER_CUTS, shown.power_cuts, width)
    yield "conformance", section("Conformance", shown.conformance_brief, width)
    if full or not shown.sweeps:  # else the sweeps' tables have them
        yield "measured values", section("Measured", _briefly(shown.measured, full), width)
    if not full:
        yield "evidence of why", _evidence(shown)
    single = shown.rounds == 1  # then there is little else; else rounds are what counts
    if single:
        yield "variability", section("Variability", shown.variability, width)
    yield "block I/O", section("Block I/O", shown.block, width)
    if not full:
        yield "latency", section("Latency", shown.latencies_brief, width)
    yield "effects of factors", section("Effects of factors", shown.effects, width)
    yield "nodes", section("Per node", shown.nodes, width)
    if full:
        yield "latency", section("Latency", shown.latencies, width)
    if not single:
        yield "variability", section("Variability", shown.variability, width)
    yield "guests", section("Guests", shown.guests, width)
    yield "details of block I/O", section("Block I/O in detail", shown.block_details, width)
    yield "further metrics", section("Further metrics", _briefly(shown.others, full), width)
    yield "probes", section("Probes", _briefly(shown.probes, full), width)
    yield "packets", section("Packets", shown.packets, width)
    yield "environment", section("Environment", shown.setup, width)


def _briefly(tables: Sequence[Table], full: bool) -> list[Table]:
    """Without footnotes that change the reading of no number, unless everything is asked for."""
    return list(tables) if full else [without_notes(table, words.is_of_outliers) for table in tables]


def _sweeps(shown: View, width: int) -> Iterator[RenderableType]:
    yield from section("Sweeps", shown.sweeps, width)
    for sentence in shown.sweep_lines:
        yield bullet("·", "dim", sentence)


def _absent(shown: View) -> Iterator[RenderableType]:
    if shown.absent:
        yield Text()
        yield Rule(Text(shown.absent.title, "bold"), align="left", style="dim")
        for cells, status, reason in shown.absent.rows:
            yield bullet("−", "yellow", f"{cells}, {status}: {reason}")


def _matrix(table: Table, width: int, full: bool) -> Iterator[RenderableType]:
    rest = len(table.rows) - _ROWS
    kept = table if full or rest <= 0 else replace(table, rows=table.rows[:_ROWS])
    for part in parts_of(kept, width):
        yield Text()
        yield from drawn_table(part, width)
    if kept is not table:
        yield foreign(f"and {fmt.plural(rest, 'further question')}", "dim")


def _question(group: VerdictGroup, width: int, full: bool) -> Iterator[RenderableType]:
    """The table, and of what it does not say the sentences: what an open comparison lacks, and gates."""
    table = group.table if full else _brief(group.table)
    for number, part in enumerate(parts_of(table, width)):
        if number:
            yield Text()
        yield from drawn_table(part, width)
    for line in group.lines:
        if full and line.verdict == "undecided":
            yield bullet(line.mark, STYLES[line.verdict], line.sentence)
        for result in line.gates:
            yield gate_bullet(result, indent=2)
    if full:
        for line in group.lines:
            if line.why:
                yield from _why(line)


def _brief(table: Table) -> Table:
    """Without what changes the reading of no verdict."""
    kept = [at for at, column in enumerate(table.columns) if column != SPREAD]
    return without_notes(table.of_columns(kept), words.is_of_outliers)


def _why(line: VerdictLine) -> Iterator[RenderableType]:
    yield bullet(line.mark, STYLES[line.verdict], f"{words.stop(line.claim)} {EVIDENCE if line.differs else ''}")
    for sentence in line.why:
        yield bullet("·", "dim", sentence, indent=2)


def _evidence(shown: View) -> Iterator[RenderableType]:
    """The surest difference underneath each of the first comparisons, each said once."""
    said = dict.fromkeys(line.why[0] for group in shown.verdicts for line in group.lines if line.differs)
    if said:
        yield Text()
        yield Rule(Text("Underneath", "bold"), align="left", style="dim")
        yield foreign("The surest difference of each comparison: evidence, not a cause.", "dim")
    for sentence in list(said)[:_MOST_EVIDENCE]:
        yield bullet("·", "dim", sentence)


_MOST_EVIDENCE = 4


def _gates(group: VerdictGroup) -> Iterator[RenderableType]:
    for line in group.lines:
        for result in line.gates:
            yield gate_bullet(result, indent=0)


_CLAIMS = {"holds": "bold green", "does not hold": "bold red", "undecided": "bold yellow", "missing": "dim"}


def _claims(claims: Sequence[ClaimLine]) -> Iterator[RenderableType]:
    yield Text()
    yield Rule(Text("Claims", "bold"), align="left", style="dim")
    yield foreign(CLAIMS, "dim")
    for line in claims:
        yield bullet(line.mark, _CLAIMS[line.verdict], line.sentence)
        for note in line.notes:
            yield bullet("·", "dim", note, indent=2)


_OUTCOMES = {
    "hit": ("✗", "bold red"),
    "passed": ("✓", "green"),
    "undecided": ("?", "yellow"),
    "missing": ("−", "bold red"),
}


def gate_bullet(result: GateResult, indent: int) -> RenderableType:
    """What came of a gate, with a shape for each outcome."""
    mark, style = _OUTCOMES[result.outcome]
    return bullet(
        mark, style, gate_sentence(result), indent, "bold red" if result.outcome in ("hit", "missing") else ""
    )
