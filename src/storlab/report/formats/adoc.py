"""A report as AsciiDoc in the manner of lab notes: per combination one small table of nodes, then the host's load.

Numbers are means over the rounds, with the half-width of their interval: those of the nodes add up to all together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storlab.analysis.summary import HOST, Estimate
from storlab.grouping import grouped
from storlab.metrics import Specs
from storlab.report.formats.escape import adoc as escaped
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.claims import ClaimLine
from storlab.report.model.grid import MANY
from storlab.report.model.input import ReportInput
from storlab.report.model.nodes import GUESTS, HOST_LOAD, LOADS, NODES, STALLS, Numbers
from storlab.report.model.power_cuts import TITLE as POWER_CUTS
from storlab.report.model.tables import Table, heading
from storlab.report.model.view import View, split_primary
from storlab.report.model.why import chapter_lines
from storlab.text import plain


def render_adoc(given: ReportInput) -> str:
    """The verdicts, a section a combination of levels, what is missing, and how to run it again."""
    return "\n".join(_lines(View(given), given)).rstrip() + "\n"


def _lines(shown: View, given: ReportInput) -> Iterator[str]:
    yield from (f"= {escaped(shown.title)}", "")
    for caution in shown.cautions:
        yield from (f"CAUTION: {escaped(caution)}", "")
    for text in (shown.description, shown.facts_line, *shown.platform_notes):
        if text:
            yield from (escaped(text), "")
    yield from ("== Answer", "", f"*{escaped(shown.answer)}*", "")
    yield from _tables(shown.matrix)
    for group in shown.verdicts:
        yield from (escaped(f"{group.heading} ({group.direction})" if group.direction else group.heading), "")
        yield from (f"- {line.mark} {escaped(' '.join((line.sentence, *line.notes)))}" for line in group.lines)
        yield ""
    if shown.not_compared:
        yield from (*(f"- {escaped(sentence)}" for sentence in shown.not_compared), "")
    for text in (shown.overview, shown.resting, shown.certainty):
        if text:
            yield from (escaped(text), "")
    if shown.claims:
        yield from _claims(shown.claims)
    if shown.why:
        yield from chapter_lines(shown.why, "==", escaped)
    for warning in shown.warnings:
        yield from (f"WARNING: {escaped(warning)}", "")
    if len(given.summary.cells) > MANY:
        yield from _section("Results", shown.measured)
    else:
        yield from _results(given)
    yield from _section(POWER_CUTS, shown.power_cuts)
    if shown.absent:
        yield from ("== Incomplete cells", "")
        yield from (f"- {escaped(f'{cells}, {status}: {reason}')}" for cells, status, reason in shown.absent.rows)
        yield ""
    yield from _section("Conformance", shown.conformance)
    yield from _section("Block I/O", (*shown.block, *shown.block_details))
    yield from _section("Effects of factors", shown.effects)
    yield from _section("Variability", shown.variability)
    yield from _section("Latency", shown.latencies)
    yield from _section("Packets", shown.packets)
    yield from _section("Environment", shown.setup)
    yield from _reproduce(given)


def _claims(claims: Sequence[ClaimLine]) -> Iterator[str]:
    yield from ("== Claims", "", CLAIMS, "")
    yield from (f"- {line.mark} {escaped(' '.join((line.sentence, *line.notes)))}" for line in claims)
    yield ""


def _results(given: ReportInput) -> Iterator[str]:
    cells = grouped((estimate.cell, estimate) for estimate in split_primary(given.summary)[0])
    numbers, nodes = Numbers(given.summary), list(dict.fromkeys(e.node or "" for e in given.summary.by_node))
    if cells:
        yield from ("== Results", "")
    above: dict[str, str] = {}
    # Cells of one level of the first factor belong under one heading, in the study's order of levels.
    first_levels = list(dict.fromkeys(tuple(e[0].levels.items())[:1] for e in cells.values()))
    for estimates in sorted(cells.values(), key=lambda e: first_levels.index(tuple(e[0].levels.items())[:1])):
        levels = list(estimates[0].levels.items())
        first, rest = dict(levels[:1]), dict(levels[1:])
        if first and first != above:
            yield from (f"=== {escaped(words.levels(first))}", "")
            above = first
        if rest:
            yield from (f"==== {escaped(words.levels(rest))}", "")
        for estimate in estimates:
            yield from _estimate(estimate, numbers, nodes, given.declared[estimate.source])
        yield from _circumstances(estimates[0].cell, numbers)


def _estimate(e: Estimate, numbers: Numbers, names: Sequence[str], specs: Specs) -> Iterator[str]:
    yield from (escaped(heading(e.metric, e.source, {})), "")
    nodes = [(name, found) for name in names if (found := numbers.get(e.cell, (e.source, e.metric, name)))]
    stalls = {name: numbers.get(e.cell, (STALLS, "stall.longest", name)) for name, _ in nodes}
    if nodes:
        name = e.metric.rsplit(".", 1)[-1].capitalize()
        columns = ["Node", name, *(["Longest stall"] if any(stalls.values()) else [])]
        yield from (f'[cols="{",".join("1" * len(columns))}"]', "|===", f"|{' | '.join(map(escaped, columns))}")
        for node, found in nodes:
            yield from ("", f"|{escaped(node)}", f"|{escaped(_with_interval(found))}")
            stall = stalls[node]
            if any(stalls.values()):
                yield f"|{escaped(_with_interval(stall)) if stall else 'not measured'}"
        yield from ("|===", "")
    mean = fmt.quantity(e.mean, e.unit, e.low, e.high)
    span = fmt.interval(e.low, e.high, e.unit, e.mean)
    bounds = f"{fmt.confidence(e.confidence)} interval {span}" if span else "no interval"
    rounds = fmt.plural(e.rounds, "round")
    sentences = " ".join(words.stop(warning) for warning in e.warnings)
    yield from (escaped(f"all nodes together: {mean}, {bounds}, {rounds}. {sentences}".rstrip()), "")
    fairness = numbers.get(e.cell, (e.source, specs.statistic(e.metric, "fairness"), None))
    if fairness:
        yield from (escaped(f"fairness: {_short(fairness)}. {words.FAIRNESS}"), "")


def _circumstances(cell: int, numbers: Numbers) -> Iterator[str]:
    """How far apart the nodes started, and how loaded the host was right after."""
    for said, key in (("start skew", (NODES, "start.skew", None)), ("CPUs used by QEMU", (GUESTS, "guests.cpu", None))):
        if found := numbers.get(cell, key):
            yield from (escaped(f"{said}: {_short(found)}"), "")
    loads = [numbers.get(cell, (HOST_LOAD, metric, HOST)) for metric in LOADS]
    loads = loads if all(loads) else [numbers.get(cell, (HOST_LOAD, metric, None)) for metric in LOADS]
    if all(loads):
        shown = ", ".join(fmt.number(load.mean, 2) for load in loads if load)
        yield from (f"host load average: {shown}", "")


def _with_interval(e: Estimate) -> str:
    """Where there is none, the line below the table says so for all nodes."""
    return fmt.plus_minus(e.mean, e.unit, e.low, e.high)


def _short(e: Estimate) -> str:
    return _with_interval(e) if e.low is not None else f"{_with_interval(e)} (no interval)"


def _section(title: str, tables: Sequence[Table]) -> Iterator[str]:
    if tables:
        yield from (f"== {title}", "")
    yield from _tables(tables)


def _tables(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        caption = f" ({table.caption})" if table.caption else ""
        yield from (f".{escaped(f'{table.title}{caption}')}", f'[cols="{",".join("1" * len(table.columns))}"]', "|===")
        yield "".join(f"|{escaped(column)} " for column in table.columns).rstrip()
        for row in table.rows:
            yield from ("", *(f"|{escaped(cell)}" for cell in row))
        yield from ("|===", "")
        yield from (line for i, note in enumerate(table.notes, 1) for line in (escaped(f"[{i}] {note}"), ""))


def _reproduce(given: ReportInput) -> Iterator[str]:
    lines = given.commands
    study = given.study
    if not lines and not study:
        return
    yield from ("== How to reproduce", "")
    for block in (lines, plain(study).rstrip("\n").split("\n") if study else []):
        if block:
            # Longer than any line of dashes in the block, so that nothing in it ends the block.
            dashes = (len(line) for line in block if line.startswith("----") and not line.strip("-"))
            fence = "-" * (max(dashes, default=3) + 1)
            yield from (fence, *(plain(line) for line in block), fence, "")
