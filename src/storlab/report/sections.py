"""What a report shows of a run: decided once, as a document that every format visits. Verdicts first, then evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from storlab.analysis.summary import Comparison, Estimate, Summary
from storlab.base.programs import has_extra, lacking
from storlab.base.text import grouped
from storlab.findings import Finding, innermost
from storlab.findings.runs import NoCheckpoint
from storlab.report.charts import charts_of
from storlab.report.document import (
    FIRST,
    LAST,
    LATER,
    SOON,
    WHOLE,
    Block,
    Code,
    Document,
    Group,
    Section,
    Sentences,
    Table,
    figures,
    said,
    section,
)
from storlab.report.language import words
from storlab.report.language.methods import method
from storlab.report.language.say import once
from storlab.report.model.answer import answer, facts_line, hosts, not_compared, overview, resting, within_budget
from storlab.report.model.block import block_detail_tables, block_tables
from storlab.report.model.chapters import (
    CLAIMS_LEAD,
    capped,
    claim_lines,
    packet_tables,
    power_cut_tables,
    profile_lines,
    safety_sentence,
    safety_table,
    steady_tables,
)
from storlab.report.model.conformance import conformance_tables
from storlab.report.model.factors import effect_tables, how_made, sweep_sentences, sweep_tables
from storlab.report.model.input import ReportInput, for_people, split_primary
from storlab.report.model.nodes import guest_tables, is_in_lock_tables, lab_notes, lock_tables, node_tables
from storlab.report.model.questions import FEW, Values, gate_lines, matrix_tables, question_group, questions_of
from storlab.report.model.setup import (
    guests_tables,
    load_tables,
    modes_table,
    node_sheets,
    property_tables,
    stack_sheets,
    unsafe_modes,
)
from storlab.report.model.tables import (
    MANY,
    PROBE,
    absent_lines,
    further_tables,
    measured_tables,
    with_note,
)
from storlab.report.model.variability import asked_latencies, latency_tables, variability_tables
from storlab.report.model.why import surest, why_blocks

Charts = Mapping[str, Sequence[Block]]
"""Where charts belong, by the names that ``report.charts`` gives these places, and the charts of each."""

_ONLY_EXPORTED = ("variance", "sigma", "outliers", "longest_stall")
"""Of the variability within trials a table of all metrics shows the coefficient of variation, which says most; a study
that compares the others has them among its results, and JSON and CSV hold all."""
_LONG = 8  # rows of a table of a probe from which on it is folded
_STACKS = 24  # sheets of facts from which on all are folded together
_EVERYTHING = "see `storlab report RUN --full` or the HTML report."


def report_document(given: ReportInput, charts: Charts | None = None, *, full: bool = False) -> Document:
    """The report on a run. ``charts``: those of ``report.charts``; ``None`` for formats that can't draw."""
    of_run = facts_line(given)
    given = for_people(given)
    summary, manifest = given.summary, given.manifest
    head = (
        *said(*map(words.stop, given.cautions), tone="caution"),
        *said(manifest.description if manifest else ""),
        *said(of_run, tone="soft"),
        *said(*map(words.stop, (*hosts(given), *(manifest.platform_notes if manifest else ()))), tone="note"),
    )
    sections = tuple(_sections(given, summary, charts or {}, drawn=charts is not None))
    return Document(
        given.title, head, (*sections, *_of_charts(Document("", (), sections), given, charts, full)), _EVERYTHING
    )


def page_document(given: ReportInput, *, full: bool = False) -> Document:
    """The report with its charts, for pages. ``full``: all charts of a run of many cells."""
    return report_document(given, charts_of(given, full=full), full=full)


def notes_document(given: ReportInput) -> Document:
    """The report in the manner of lab notes: what was measured stands by combinations, node for node."""
    document, notes = report_document(given), lab_notes(for_people(given))
    if not notes:
        return document
    kept = [each for each in document.sections if each.id != "measured"]
    at = 1 + next(at for at, each in enumerate(kept) if each.id == "comparisons")
    return replace(document, sections=(*kept[:at], Section("results", "Results", notes), *kept[at:]))


def _sections(given: ReportInput, summary: Summary, charts: Charts, *, drawn: bool) -> Iterator[Section]:
    questions, values = questions_of(summary), Values(summary, given if drawn else None)
    first, rest = split_primary(summary)
    watched = [e for e in summary.estimates if e.source.startswith(PROBE) and not is_in_lock_tables(e, given.declared)]
    probes, warnings = _in_place(further_tables(watched, summary.cells), summary.warnings)
    warnings = [*map(words.stop, (*unsafe_modes(given), *capped(given))), *warnings]

    levels = {cell.cell: cell.levels for cell in summary.cells}
    headline = f"{within_budget(given)}{answer(summary, questions, first)} {safety_sentence(given.power_cuts, levels)}"
    yield Section("answer", "Answer", said(headline.strip(), tone="strong"), FIRST, titled=False)
    sweeps = (*charts.get("sweeps", ()), *said(*sweep_sentences(summary), mark="·"), *sweep_tables(summary))
    yield from section("sweeps", "Sweeps", *sweeps)
    yield from _questions(given, summary, questions, values, first, warnings, charts)
    claims = (*said(CLAIMS_LEAD, tone="soft"), Sentences(claim_lines(summary)))
    yield from section("claims", "Claims", *claims, weight=FIRST) if summary.claims else ()
    absent = absent_lines(summary)
    yield from section("absent", "Incomplete cells", *([Sentences(absent)] if absent else []), weight=SOON)
    yield from section("steady", "Steady state", *steady_tables(summary))
    yield from section("why", "Why", *why_blocks(summary), weight=LATER, brief=surest(c for q in questions for c in q))
    measured = measured_tables(_not_among(questions, first, values), summary.cells)
    title = "Measured" if measured else "Rounds"
    swept = () if summary.sweeps else None  # then the sweeps' tables have them
    rounds = charts.get("measured", ())
    repeated = any(estimate.rounds > 1 for estimate in summary.estimates)
    lead = said(_POINTS if rounds and repeated else "", tone="soft")
    yield from section(
        "measured", title, *lead, *rounds, *measured, weight=LATER, brief=tuple(measured) if swept is None else swept
    )
    yield from section("power-cuts", "After a power cut", *power_cut_tables(given.power_cuts))
    checks = tuple(conformance_tables(given, brief=True))
    yield from section("conformance", "Conformance", *conformance_tables(given), brief=checks)
    guests = Group("What each guest's QEMU used", tuple(guest_tables(summary, given.declared)), folded=True)
    yield from section("nodes", "Per node", *node_tables(summary, given.declared), guests, weight=LAST)
    yield from _block(summary, charts)
    yield from section(
        "effects", "Effects of factors", *_effects(summary, charts), weight=LAST, brief=tuple(effect_tables(summary))
    )
    yield from section("time", "Over time", *_time(given, charts), weight=WHOLE)
    varied = tuple(variability_tables(given))
    single = summary.rounds_done == 1  # then there is little else; else rounds are what counts
    lead = said(_VARIABILITY if varied else "", tone="soft")
    more = Group(
        "Each of these alone: histogram, density, bell curve, box", tuple(charts.get("variability-details", ())), True
    )
    blocks = (*lead, *varied, *charts.get("variability", ()), more)
    yield from section("variability", "Variability", *blocks, weight=SOON if single else LAST, brief=varied)
    latencies, asked = latency_tables(summary, given.declared), asked_latencies(summary, given.declared)
    lead = said(_LATENCY if charts.get("latency") else "", tone="soft")
    yield from section(
        "latency", "Latency", *lead, *charts.get("latency", ()), *latencies, weight=LATER, brief=tuple(asked)
    )
    cpus = charts.get("cpus", ()) or profile_lines(given.profiles)
    yield from section("cpus", "Where CPUs were", *said(_CPUS, tone="soft") if cpus else (), *cpus, weight=WHOLE)
    shown = [e for e in rest if given.declared[e.source].find(e.metric).statistic not in _ONLY_EXPORTED]
    others = tuple(further_tables(shown, summary.cells))
    yield from section(
        "further",
        "Further metrics",
        Group("All other numbers of the workloads", others, folded=True),
        weight=LAST,
        brief=others,
    )
    factors = {name for cell in summary.cells for name in cell.levels}
    tables = [*lock_tables(summary, given.declared), *probes, *packet_tables(given.packets, factors)]
    yield from section("probes", "Probes", *map(_folded, tables), weight=LAST, brief=tuple(tables))
    yield from _environment(given, summary)


_POINTS = "One point per round, first at top. Band: interval of the mean; line: mean."
_VARIABILITY = "Variation within trials. Samples aren't independent, so there are no verdicts."
_LATENCY = (
    "All operations of all rounds, nodes and jobs, from merged histograms. To the right: the slowest tenth, hundredth, "
    "thousandth. Curves are drawn at the upper edges of the histogram's bins; tables say how far off that can be."
)
_CPUS = (
    "Sampled stacks of all rounds: a box is a function, as wide as its share of CPU, and below it is what it calls. "
    "The stacks themselves are in the run's folder, as profile.folded."
)
_BLOCK = (
    "Requests as the kernel issued them, in per cent. The line is the unit that the study asks about: orange is below "
    "it, blue is not. The stronger the colour, the more requests: a step is a factor of ten, so one in ten "
    "thousand shows."
)
_EFFECTS = (
    "Where the variation comes from: how much goes with each factor, and with each pair of factors. Shares describe; "
    "verdicts are above. Lines that are parallel show factors that do not interact."
)
_ROUNDS = (
    "All levels within a trial: the line is the median of the rounds, the band how far they lie apart. Each level by "
    "itself: one thin line a round, their median bold. Charts of one metric that stand side by side share their scale. "
    "Percentiles of several nodes are those of the slowest."
)
_TRIAL = (
    "All levels within a trial: the line is the mean of a step of time, the band goes from its least sample to its "
    "largest; thick lines are the levels between changes, dashed ones the changes. Charts of one metric that stand "
    "side by side share their scale. Percentiles of several nodes are those of the slowest."
)


def _questions(
    given: ReportInput,
    summary: Summary,
    questions: Sequence[Sequence[Comparison]],
    values: Values,
    primary: Sequence[Estimate],
    warnings: Sequence[str],
    charts: Charts,
) -> Iterator[Section]:
    matrix = matrix_tables(questions, values) if len(questions) > FEW else []
    groups = tuple(question_group(question, values) for question in questions)
    safety = safety_table(given.power_cuts, primary)
    before: list[Block] = [*([safety] if safety else []), *matrix]
    after = (
        *said(*not_compared(summary.comparisons), mark="−", tone="missing"),
        *said(" ".join(filter(None, (overview(summary), resting(summary), words.certainty(summary)))), tone="soft"),
        *said(*warnings, tone="note"),
    )
    one_by_one = (Group(f"{len(groups)} questions one by one", groups, folded=True),) if matrix else groups
    gates = tuple(line for question in questions for line in gate_lines(question))
    brief = (*before, *([Sentences(gates)] if matrix and gates else ()), *(() if matrix else groups), *after)
    blocks = (*before, *one_by_one, *charts.get("questions", ()), *after)
    title = "Comparisons" if summary.comparisons else "Rounds"
    yield Section("comparisons", title, blocks, FIRST, brief, titled=False)


def _block(summary: Summary, charts: Charts) -> Iterator[Section]:
    tables, details = block_tables(summary), block_detail_tables(summary)
    drawn, aside = charts.get("block", ()), charts.get("block-details", ())
    more = Group("Every size, spread between rounds, other operations", (*aside, *details), folded=True)
    lead = said(_BLOCK if drawn or aside else "", tone="soft")
    yield from section("block", "Block I/O", *lead, *drawn, *tables, more, weight=LATER, brief=tuple(tables))


def _effects(summary: Summary, charts: Charts) -> tuple[Block, ...]:
    found = (*charts.get("effects", ()), *effect_tables(summary))
    return (*said(_EFFECTS, tone="soft"), *found) if found else ()


def _time(given: ReportInput, charts: Charts) -> tuple[Block, ...]:
    """Courses of what was sampled; where they can't be drawn, of what there are any."""
    repeated = any(estimate.rounds > 1 for estimate in given.summary.estimates)
    if charts:
        drawn = charts.get("time", ())
        return (*said(_ROUNDS if repeated else _TRIAL, tone="soft"), *drawn) if drawn else ()
    kinds = given.series.select("source", "metric").unique(maintain_order=True).iter_rows()
    found = grouped((source, metric) for source, metric in kinds)
    return said(
        *(f"{source}: {words.listed(metrics)}, drawn in the HTML report." for source, metrics in found.items()),
        mark="·",
    )


def _folded(table: Table) -> Block:
    named = "; ".join(column for column in table.columns[1:] if column != "better")
    return Group(f"{table.title}: {named}", (table,), folded=True) if len(table.rows) > _LONG else table


def _environment(given: ReportInput, summary: Summary) -> Iterator[Section]:
    modes, stacks = modes_table(given), stack_sheets(given)
    tables = (*load_tables(summary), *guests_tables(given), *([modes] if modes else []), *property_tables(given))
    sheets: tuple[Block, ...] = tuple(stacks)
    if len(stacks) > _STACKS:
        sheets = (Group(f"{len(stacks)} cells that differ", sheets, folded=True),)
    yield from section(
        "facts", "Environment", *tables, *node_sheets(given.manifest), *sheets, weight=LATER, brief=tables
    )
    name = PurePath((given.manifest and given.manifest.study_file) or "study.toml").name
    commands = Code("\n".join(given.commands)) if given.commands else None
    study = Code(given.study, f"The study file {name}") if given.study else None
    yield from section("reproduce", "How to reproduce", commands, study, weight=WHOLE)
    yield from section(
        "method",
        "Method",
        *said(" ".join(filter(None, (method(summary.method) if summary.method else "", *how_made(summary))))),
        weight=WHOLE,
    )


def _of_charts(shown: Document, given: ReportInput, charts: Charts | None, full: bool) -> tuple[Section, ...]:
    """A last word on charts that are not there."""
    if charts is None:
        return ()
    left_out = sum(figure.file for figure in figures(shown)) - len(charts.get("questions", ()))
    if not has_extra("charts"):
        why = f"This page has no charts: {lacking('charts', 'charts')}."
    elif left_out > 0:
        why = f"{left_out} more charts are not on this page; all of them are in the run's folder, in charts/."
    elif len(given.summary.cells) > MANY and not full:
        why = "With so many cells, this page has the first charts of each kind: `--full` draws all."
    else:
        return ()
    return (Section("charts", "Charts", said(why, tone="soft"), titled=False),)


def _in_place(tables: list[Table], warnings: Sequence[Finding]) -> tuple[list[Table], list[str]]:
    """Warnings that qualify some rows alone become footnotes there; the others are left."""
    checkpoints = [each for each in warnings if isinstance(innermost(each), NoCheckpoint)]
    rest = list(map(words.stop, once(each for each in warnings if each not in checkpoints)))
    for warning in map(words.stop, once(checkpoints)):
        with_it = with_note(tables, "checkpoint", warning)
        if with_it is None:
            rest.append(warning)
        else:
            tables = with_it
    return tables, rest


def _not_among(
    questions: Iterable[Sequence[Comparison]], estimates: Iterable[Estimate], values: Values
) -> list[Estimate]:
    """Estimates that no question shows beside its ratios."""
    shown = {id(e) for q in questions for level in values.levels_of(q) if (e := values.of(q[0], level))}
    return [e for e in estimates if id(e) not in shown]
