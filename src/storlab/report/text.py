"""A report for the terminal: the verdicts, then their numbers. Everything else is in the HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from storlab.report import format as fmt
from storlab.report.input import ReportInput
from storlab.report.terminal import STYLES, WIDTH, bullet, foreign, in_columns, section
from storlab.report.view import VerdictGroup, View, view


def render_text(given: ReportInput, width: int = WIDTH) -> str:
    """The report as plain text without colour, ``width`` columns wide."""
    return in_columns(TerminalReport(given), width)


class TerminalReport:
    """The report for any Rich console, as wide as that is.

    Foreign text is in ``Text`` objects, so its brackets are no markup.
    """

    def __init__(self, given: ReportInput) -> None:
        self._shown = view(given)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _parts(self._shown, options.max_width)


def _parts(shown: View, width: int) -> Iterator[RenderableType]:
    yield foreign(shown.title, "bold")
    for caution in shown.cautions:
        yield bullet("!", "bold yellow", caution, style="bold yellow")
    if shown.facts_line:
        yield foreign(shown.facts_line, "dim")
    for note in shown.platform_notes:
        yield bullet("!", "yellow", note)
    for group in shown.verdicts:
        yield Text()
        yield from _verdicts(group)
    if shown.not_compared:
        yield Text()
        for sentence in shown.not_compared:
            yield bullet("−", "yellow", sentence)
    yield Text()
    yield foreign(" ".join(part for part in (shown.overview, shown.certainty) if part), "dim")
    if shown.warnings:
        yield Text()
        for warning in shown.warnings:
            yield bullet("!", "yellow", warning)
    yield from section("Measured", shown.measured, width)
    yield from section("Node by node", shown.nodes, width)
    yield from section("Block I/O", shown.block, width)
    yield from section("Compared", shown.comparisons, width)
    yield from section("Effects of factors", shown.effects, width)
    single = shown.rounds == 1  # then there is little else; else rounds are what counts
    if single:
        yield from section("Variability", shown.variability, width)
    if shown.absent:
        yield Text()
        yield Rule(Text(shown.absent.title, "bold"), align="left", style="dim")
        for cells, status, reason in shown.absent.rows:
            yield bullet("−", "yellow", f"{cells}, {status}: {reason}")
    variability = () if single else shown.variability
    more = [shown.guests, shown.block_details, variability, shown.latencies, shown.others, shown.probes, shown.setup]
    names = ("guests", "block I/O", "variability", "latency", "further metrics", "probes", "set-up")
    if any(more):
        kinds = ", ".join(name for name, tables in zip(names, more, strict=True) if tables)
        count = fmt.plural(sum(map(len, more)), "more table")
        be = "is" if count.startswith("1 ") else "are"
        yield Text()
        yield foreign(f"{count} ({kinds}) {be} in the Markdown and HTML reports.", "dim")


def _verdicts(group: VerdictGroup) -> Iterator[RenderableType]:
    heading = foreign(group.heading, "bold")
    if group.direction:
        heading.append(f"  {group.direction}", "dim")
    yield heading
    if group.lead:
        yield Padding(foreign(group.lead), (0, 0, 0, 2))
    for line in group.lines:
        yield bullet(line.mark, STYLES[line.verdict], line.sentence, indent=2)
        for warning in line.warnings:
            yield bullet("!", "yellow", warning, indent=4)
