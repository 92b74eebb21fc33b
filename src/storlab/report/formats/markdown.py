"""A report as Markdown (CommonMark with GitHub's tables), for issues, pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storlab.report.formats.escape import markdown as escaped
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.claims import ClaimLine
from storlab.report.model.input import ReportInput
from storlab.report.model.power_cuts import TITLE as POWER_CUTS
from storlab.report.model.steady import TITLE as STEADY_STATE
from storlab.report.model.tables import Table
from storlab.report.model.view import VerdictGroup, View
from storlab.report.model.why import chapter_lines
from storlab.text import plain


def render_markdown(given: ReportInput) -> str:
    """The whole report but its charts and facts, which need the HTML page."""
    return "\n".join(_lines(View(given), given)).rstrip() + "\n"


def _lines(shown: View, given: ReportInput) -> Iterator[str]:
    yield from (f"# {escaped(shown.title)}", "")
    for caution in shown.cautions:
        yield from (f"> **Caution:** {escaped(caution)}", "")
    for text in (shown.description, shown.facts_line):
        if text:
            yield from (escaped(text), "")
    for note in shown.platform_notes:
        yield from (f"> **Note:** {escaped(note)}", "")
    yield from _verdicts(shown)
    if shown.claims:
        yield from _claims(shown.claims)
    if shown.why:
        yield from chapter_lines(shown.why, "##", escaped)
    if shown.warnings:
        yield from ("## Warnings", "")
        yield from (f"- {escaped(warning)}" for warning in shown.warnings)
        yield ""
    yield from _section(STEADY_STATE, shown.steady)
    yield from _section("Sweeps", shown.sweeps)
    yield from (f"- {escaped(sentence)}" for sentence in shown.sweep_lines)
    yield from [""] * bool(shown.sweep_lines)
    yield from _section("Measured", shown.measured)
    yield from _section(POWER_CUTS, shown.power_cuts)
    yield from _section("Conformance", shown.conformance)
    yield from _section("Per node", (*shown.nodes, *shown.guests))
    yield from _section("Block I/O", (*shown.block, *shown.block_details))
    yield from _section("Effects of factors", shown.effects)
    yield from _section("Variability", shown.variability)
    yield from _section("Latency", shown.latencies)
    yield from _section("Further metrics", shown.others)
    if shown.absent:
        yield from ("## Incomplete cells", "", *table_lines(shown.absent))
    yield from _section("Probes", (*shown.probes, *shown.packets))
    yield from _section("Environment", shown.setup)
    yield from _reproduce(given)
    if shown.method:
        yield from ("## Method", "", escaped(shown.method), "")


def _verdicts(shown: View) -> Iterator[str]:
    yield from ("## Answer", "", f"**{escaped(shown.answer)}**", "")
    for table in shown.matrix:
        yield from (f"### {escaped(table.title)}{_caption(table)}", "", *table_lines(table))
    if shown.matrix:
        yield from ("## Questions one by one", "")
    for group in shown.verdicts:
        yield from _verdict_group(group)
    if shown.not_compared:
        yield from (*(f"- {escaped(sentence)}" for sentence in shown.not_compared), "")
    for text in (shown.overview, shown.resting, shown.certainty):
        if text:
            yield from (escaped(text), "")


def _verdict_group(group: VerdictGroup) -> Iterator[str]:
    yield from (f"### {escaped(group.heading)}{_caption(group.table)}", "")
    if group.lead:
        yield from (f"**{escaped(group.lead)}**", "")
    yield from table_lines(group.table)
    for line in group.told:
        yield f"- {line.mark} {escaped(line.sentence)}"
        yield from (f"  - {escaped(result)}" for result in line.results)
    yield ""


def _caption(table: Table) -> str:
    return f" ({escaped(table.caption)})" if table.caption else ""


def _claims(claims: Sequence[ClaimLine]) -> Iterator[str]:
    yield from ("## Claims", "", CLAIMS, "")
    for line in claims:
        yield f"- {line.mark} {escaped(line.sentence)}"
        yield from (f"  - {escaped(note)}" for note in line.notes)
    yield ""


def _section(title: str, tables: Sequence[Table]) -> Iterator[str]:
    if not tables:
        return
    yield from (f"## {title}", "")
    for table in tables:
        yield from (f"### {escaped(table.title)}{_caption(table)}", "", *table_lines(table))


def table_lines(table: Table) -> Iterator[str]:
    """The table and its footnotes, without its title."""
    yield f"| {' | '.join(escaped(column) for column in table.columns)} |"
    yield f"| {' | '.join('---:' if table.is_number(i) else '---' for i in range(len(table.columns)))} |"
    for row in table.rows:
        yield f"| {' | '.join(escaped(cell) for cell in row)} |"
    yield ""
    for number, note in enumerate(table.notes, start=1):
        yield from (f"\\[{number}\\] {escaped(note)}", "")


def _reproduce(given: ReportInput) -> Iterator[str]:
    lines = given.commands
    if not lines:
        return
    yield from ("## How to reproduce", "", *(f"    {plain(line)}" for line in lines), "")
    if given.study:
        yield from ("The study file:", "")
        # An indented block: no line of a study can end it, as one could end a fenced block.
        yield from (f"    {line}" for line in plain(given.study).rstrip("\n").split("\n"))
        yield ""
