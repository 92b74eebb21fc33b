"""What a report shows and in which order, before any format draws it: verdicts first, then their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from storlab.analysis.machines import machines_of_rounds
from storlab.analysis.summary import Comparison, Estimate, GateResult, Summary, Verdict
from storlab.grouping import grouped, ranges
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.model.answer import answer
from storlab.report.model.block import block_detail_tables, block_tables
from storlab.report.model.caps import capped
from storlab.report.model.claims import claim_lines
from storlab.report.model.conformance import conformance_tables
from storlab.report.model.effects import effect_tables, how_made
from storlab.report.model.gates import gate_sentence
from storlab.report.model.grid import further_tables, measured_tables
from storlab.report.model.input import ReportInput, for_people, shared_levels, split
from storlab.report.model.latencies import asked_latencies, latency_tables
from storlab.report.model.locks import is_in_lock_tables, lock_tables
from storlab.report.model.nodes import guest_tables, node_tables
from storlab.report.model.packets import packet_tables
from storlab.report.model.power_cuts import power_cut_tables
from storlab.report.model.properties import property_tables
from storlab.report.model.questions import FEW, Values, matrix_tables, question_table
from storlab.report.model.setup import guests_tables, load_facts, load_tables, modes_table, unsafe_modes
from storlab.report.model.steady import steady_tables
from storlab.report.model.sweeps import sweep_sentences, sweep_tables
from storlab.report.model.tables import PROBE, Table, absent_table, heading, together, with_note
from storlab.report.model.variability import variability_tables
from storlab.report.model.why import best_lines, differs, why_chapter

_ONLY_EXPORTED = ("variance", "sigma", "outliers", "longest_stall")
"""Of the variability within trials a table of all metrics shows the coefficient of variation, which says most; a study
that compares the others has them among its results, and JSON and CSV hold all."""


_NAMED = 4  # comparisons of a sentence; of more, the first are named


@dataclass(frozen=True)
class VerdictLine:
    """One comparison in words."""

    verdict: Verdict
    mark: str
    claim: str
    ratio: str
    evidence: str
    reason: str
    warnings: tuple[str, ...]
    gates: tuple[GateResult, ...] = ()
    why: tuple[str, ...] = ()  # the first sentences of what differs underneath, or that nothing does
    differs: bool = False  # whether anything does

    @property
    def results(self) -> tuple[str, ...]:
        """What came of gates."""
        return tuple(map(gate_sentence, self.gates))

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings, and what came of gates."""
        return (*self.warnings, *self.results)

    @property
    def sentence(self) -> str:
        return f"{self.claim}: {self.ratio} {self.evidence}"


@dataclass(frozen=True)
class VerdictGroup:
    """All comparisons of one metric under one load."""

    heading: str
    direction: str
    lead: str
    lines: tuple[VerdictLine, ...]
    comparisons: tuple[Comparison, ...]
    table: Table  # absolute values of the levels, with the ratios beside them

    @property
    def told(self) -> tuple[VerdictLine, ...]:
        """Those of which the table does not say all: what an open one lacks, and what came of gates."""
        return tuple(line for line in self.lines if line.verdict == "undecided" or line.gates)

    @property
    def open(self) -> list[tuple[str, str]]:
        """What undecided ones lack, said once for all that lack the same; each with its mark."""
        return open_lines([self])

    @property
    def decided(self) -> bool:
        """Whether any of its comparisons has a verdict."""
        return any(c.verdict != "undecided" for c in self.comparisons)


class View:
    """What a report shows of ``given``, as text and tables, in the order in which every format shows it."""

    def __init__(self, given: ReportInput) -> None:
        self.facts_line = _facts_line(given)
        given = for_people(given)
        summary, manifest = given.summary, given.manifest
        values = Values(summary.estimates)
        first, rest = split_primary(summary)
        shown = [e for e in rest if given.declared[e.source].find(e.metric).statistic not in _ONLY_EXPORTED]
        watched = [
            e for e in summary.estimates if e.source.startswith(PROBE) and not is_in_lock_tables(e, given.declared)
        ]
        self.title = given.title
        self.description = manifest.description if manifest else ""
        self.cautions = list(map(words.stop, given.cautions))
        self.platform_notes = list(map(words.stop, (*_hosts(given), *(manifest.platform_notes if manifest else ()))))
        self.rounds = summary.rounds_done
        self.overview = overview(summary)
        self.certainty = words.certainty(summary)
        self.resting = resting(summary)
        self.verdicts = verdict_groups(ordered_comparisons(summary), values)
        questions = [group.comparisons for group in self.verdicts]
        self.answer = _within_budget(given) + answer(summary, questions, first)
        self.matrix = matrix_tables(questions, values) if len(questions) > FEW else []
        self.not_compared = not_compared(summary.comparisons)
        found = (*unsafe_modes(given), *capped(given), *summary.warnings)
        said = [words.stop(warning) for warning in words.once(found)]
        self.measured = measured_tables(_not_among(questions, first, values), summary.cells)
        self.power_cuts = power_cut_tables(given.power_cuts)
        self.sweeps = sweep_tables(summary)
        self.sweep_lines = sweep_sentences(summary)
        self.steady = steady_tables(summary)
        self.conformance = conformance_tables(given)
        self.conformance_brief = conformance_tables(given, brief=True)
        self.nodes = node_tables(summary, given.declared)
        self.guests = guest_tables(summary, given.declared)
        self.block = block_tables(summary)
        self.block_details = block_detail_tables(summary)
        self.claims = claim_lines(summary)
        self.why = why_chapter(summary)
        self.effects = effect_tables(summary)
        self.variability = variability_tables(given)
        self.latencies = latency_tables(summary, given.declared)
        self.latencies_brief = asked_latencies(summary, given.declared)
        self.others = further_tables(shown, summary.cells)
        self.absent = absent_table(summary)
        further, self.warnings = _in_place(further_tables(watched, summary.cells), said)
        self.probes = [*lock_tables(summary, given.declared), *further]
        factors = {name for cell in summary.cells for name in cell.levels}
        self.packets = packet_tables(given.packets, factors)
        modes = modes_table(given)
        own = [] if modes is None else [modes]
        self.setup = [*load_tables(summary), *guests_tables(given), *own, *property_tables(given)]
        self.method = " ".join(filter(None, (summary.method, *how_made(summary))))


def _in_place(tables: list[Table], warnings: Iterable[str]) -> tuple[list[Table], list[str]]:
    """Warnings that qualify some rows alone become footnotes there; the others are left."""
    rest = []
    for warning in warnings:
        noted = with_note(tables, "checkpoint", warning) if words.is_of_checkpoints(warning) else None
        if noted is None:
            rest.append(warning)
        else:
            tables = noted
    return tables, rest


def split_primary(summary: Summary) -> tuple[list[Estimate], list[Estimate]]:
    """Estimates of what the study asks about, the primary metric first and then what else it compares; and the rest."""
    compared = {(c.source, c.metric) for c in summary.comparisons}
    everything = [e for e in summary.estimates if not e.source.startswith(PROBE) or (e.source, e.metric) in compared]
    first, others = split(summary.primary, everything)
    asked = [e for e in others if (e.source, e.metric) in compared]
    return first + asked, [e for e in others if (e.source, e.metric) not in compared]


def ordered_comparisons(summary: Summary) -> list[Comparison]:
    """Comparisons that have a ratio, those of the primary metric first."""
    first, others = split(summary.primary, (c for c in summary.comparisons if c.ratio is not None))
    return first + others


def not_compared(comparisons: Iterable[Comparison]) -> list[str]:
    """A sentence for each reason why comparisons have no ratio, with where that is so, if elsewhere they have one."""
    every = list(comparisons)
    compared = {(c.factor, c.a, c.b) for c in every if c.ratio is not None}
    groups = grouped((c.reason, c) for c in every if c.ratio is None)
    return [
        words.not_compared(group, [words.place(c) for c in group if (c.factor, c.a, c.b) in compared])
        for group in groups.values()
    ]


def _not_among(
    questions: Iterable[Sequence[Comparison]], estimates: Iterable[Estimate], values: Values
) -> list[Estimate]:
    """Estimates that no question shows beside its ratios."""
    shown = {
        id(e) for question in questions for level in values.levels_of(question) if (e := values.of(question[0], level))
    }
    return [e for e in estimates if id(e) not in shown]


def verdict_groups(comparisons: Iterable[Comparison], values: Values | None = None) -> list[VerdictGroup]:
    """Comparisons by metric and load: those that pool others first, then those of which any is decided."""
    known = values or Values(())
    groups = grouped(((c.pooled, c.factor, c.source, c.metric, tuple(c.within.items())), c) for c in comparisons)
    found = [_verdict_group(group, known) for group in groups.values()]
    return sorted(found, key=lambda group: (not group.comparisons[0].pooled, not group.decided))


def _verdict_group(group: Sequence[Comparison], values: Values) -> VerdictGroup:
    first = group[0]
    where = heading(first.metric, first.source, first.within)
    bare = any(not words.speaks_for_itself(level) for c in group for level in (c.a, c.b))
    parts = (where, words.POOLED if first.pooled else "", f"by {first.factor}" if bare else "")
    title = ", ".join(part for part in parts if part)
    return VerdictGroup(
        heading=title,
        direction=words.direction(first.better),
        lead=words.lead(group),
        lines=tuple(map(_verdict_line, group)),
        comparisons=tuple(group),
        table=question_table(group, values, title),
    )


def open_lines(groups: Sequence[VerdictGroup]) -> list[tuple[str, str]]:
    """What undecided comparisons lack, each kind once, with all that it is so for, and its mark."""
    several = len(groups) > 1
    found = [
        (
            (words.mark(c), words.lacks(c)),
            f"{words.named(c.factor, c.a)} against {words.named(c.factor, c.b)}"
            f"{f' ({group.heading})' if several else ''}",
        )
        for group in groups
        for c in group.comparisons
        if c.verdict == "undecided"
    ]
    return [
        (mark, f"{_first_of(those)}: {lacks if mark == words.DESCRIBED else f'undecided. {lacks}'}".strip())
        for (mark, lacks), those in grouped(found).items()
    ]


def _first_of(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return words.listed(names) if rest <= 0 else f"{', '.join(names[:_NAMED])} and {rest} more"


def _verdict_line(c: Comparison) -> VerdictLine:
    said = (words.claim(c), words.ratio(c), words.evidence(c), words.stop(c.reason), tuple(map(words.stop, c.warnings)))
    why = best_lines(c)
    named = bool(why) and differs(c)
    return VerdictLine(c.verdict, words.mark(c), *said, gates=c.gates, why=why, differs=named)


_MOST = ", the most that the study allows"


def overview(summary: Summary) -> str:
    """How much was measured, and why the run ended, in one or two sentences."""
    measured = sum(cell.status in ("measured", "partly failed") for cell in summary.cells)
    cells = f"{measured} of {fmt.plural(len(summary.cells), 'cell')} measured" if summary.cells else ""
    rounds = f"{fmt.plural(summary.rounds_done, 'round')} done"
    undecided = sum(c.verdict == "undecided" for c in summary.comparisons)
    tally = words.tally(summary.comparisons)
    compared = f"{fmt.plural(len(summary.comparisons), 'comparison')}: {tally}" if tally else "no comparisons"
    after = f"Stopped after {fmt.plural(summary.rounds_done, 'round')}"
    if tally and summary.stopped.startswith(f"{after}{_MOST}"):  # the tally says what is open
        rounds, ended = f"{rounds}{_MOST}", ""
    elif tally and undecided == 0 and summary.stopped.startswith(f"{after}: {len(summary.comparisons)} comparison"):
        ended = ""
    else:
        ended = words.stop(summary.stopped[:1].upper() + summary.stopped[1:])
    counted = "; ".join(part for part in (rounds, cells, compared) if part)
    return f"{words.stop(counted)} {ended}".strip()


def _within_budget(given: ReportInput) -> str:
    """ "One round fits the budget of 3 min. ", of a run that its budget ended; else empty."""
    manifest = given.manifest
    if manifest is None or not manifest.spent or manifest.minutes is None:
        return ""
    rounds = given.summary.rounds_done
    fit = "One round fits" if rounds == 1 else f"{fmt.plural(rounds, 'round')} fit"
    return f"{fit} the budget of {manifest.minutes:g} min. "


def resting(summary: Summary) -> str:
    """A sentence for all cells that were not run again after the same round; empty where every cell was due."""
    groups = grouped(((c.rests_after, c.rests_because), c) for c in summary.cells if c.rests_after is not None)
    return " ".join(
        f"{together(cells, summary.cells)} rested from round {after + 1} on: "
        + words.stop(because if len(cells) == 1 else because.replace(" its ", " their "))
        for (after, because), cells in sorted(groups.items(), key=lambda group: group[0][0] or 0)
        if after is not None
    )


def _facts_line(given: ReportInput) -> str:
    manifest, shared = given.manifest, words.levels(shared_levels(given.summary))
    cells = {state.cell for state in given.summary.cells if state.rounds}
    loads = load_facts(given.summary).items()
    said = [
        f"{load}: {', '.join(facts)}"
        for load, of in loads
        if (facts := [f"{n} {t}" for n, t, at in of if {*at} == cells])
    ]
    everywhere = " · ".join([*([f"everywhere {shared}"] if shared else []), *said])
    if manifest is None:
        return everywhere
    nodes = manifest.nodes
    kernels = sorted({facts.kernel.release for facts in nodes.values() if facts.kernel})
    parts = [
        f"run {manifest.run}",
        f"started {fmt.instant(manifest.started)}",
        f"{'node' if len(nodes) == 1 else 'nodes'} {words.compact(list(nodes))}" if nodes else "",
        f"Linux {', '.join(kernels)}" if kernels else "",
        f"Storlab {manifest.storlab}",
        everywhere,
    ]
    return " · ".join(part for part in parts if part)


def _hosts(given: ReportInput) -> Iterator[str]:
    """Which machine did which rounds, where several did."""
    places = machines_of_rounds(given.trials)
    if not places:
        return
    rounds = grouped((host, number) for number, host in places.items() if host)
    each = "; ".join(f"{host}: {ranges(numbers)}" for host, numbers in rounds.items())
    yield (
        f"Several machines did rounds ({each}). Ratios are of trials on the same machine; means of cells mix machines, "
        "and verdicts are about these machines"
    )
