"""Chapters that some runs have: claims, steady state, power cuts, packets, and tunables that were capped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from storlab.analysis.data import Claim, ClaimVerdict
from storlab.analysis.summary import Estimate, SteadyWindow, Summary
from storlab.base.text import grouped
from storlab.report.document import Cell, Line, Sentences, Table, Tone
from storlab.report.language import format as fmt
from storlab.report.language import words
from storlab.report.language.methods import claim_value, expected
from storlab.report.language.say import said as told_of
from storlab.report.language.say import say
from storlab.report.model.input import CpuProfile, Facts, Packets, PowerCuts, ReportInput
from storlab.report.model.tables import among, heading, noted, split_levels

_CLAIMS: dict[ClaimVerdict, tuple[str, Tone]] = {
    "holds": ("✓", "better"), "does not hold": ("✗", "worse"), "undecided": ("?", "undecided"),
    "missing": ("−", "missing"),
}  # fmt: skip
CLAIMS_LEAD = "Each claim is tested under its name. Undecided means neither: these rounds cannot settle it."
_STEADY = "range and slope over the last five rounds, as shares of their mean; SNIA allows 20 % and 10 %"
_CUTS = "one load per set-up, after the rounds; the interval bounds the share of all moments that would break it"
_TOPS = 5  # commands of a profile


def claim_lines(summary: Summary) -> tuple[Line, ...]:
    """What somebody said, with the answer, a line each."""
    return tuple(_claim_line(claim) for claim in summary.claims)


def _claim_line(claim: Claim) -> Line:
    notes = [f"Source: {words.stop(claim.said_by)}"] if claim.said_by else []
    under = tuple(Line(note, "·", "soft") for note in (*notes, *map(words.stop, told_of(claim.warnings))))
    text = f"{claim.name.rstrip('.:')}: {claim.verdict}. {_figure(claim)} {words.stop(say(claim.reason))}"
    return Line(text.rstrip(), *_CLAIMS[claim.verdict], under)


def _figure(claim: Claim) -> str:
    """ "acks.per-request, iscsi ÷ nvme: 11.8× (11.2× to 12.4×, 6 rounds); claimed: more." """
    asked = expected(claim.expected, claim.unit)
    said = f"; claimed: {asked}." if asked else "."
    about = ", ".join(filter(None, (claim.metric, _where(claim))))
    return f"{': '.join(filter(None, (about, claim_value(claim))))}{said}"


def _where(claim: Claim) -> str:
    if not claim.right:
        return words.levels(claim.left)
    both = {name: level for name, level in claim.left.items() if claim.right[name] == level}
    (factor,) = (name for name in claim.left if name not in both)
    sides = f"{words.named(factor, claim.left[factor])} ÷ {words.named(factor, claim.right[factor])}"
    return f"{sides} with {words.levels(both)}" if both else sides


def steady_tables(summary: Summary) -> list[Table]:
    """One table a metric, a row a point of it; none if the study does not stop at steady state."""
    return [_steady(rows) for rows in grouped(((w.source, w.metric), w) for w in summary.steady).values()]


def _steady(windows: list[SteadyWindow]) -> Table:
    shared, names = split_levels([window.levels for window in windows])
    columns = (*names, "rounds", "mean", "range", "slope", "steady")
    rows = tuple((*(window.levels[name] for name in names), *_window(window)) for window in windows)
    first = windows[0]
    return Table(heading(first.metric, first.source, shared), columns, rows, len(names), _STEADY)


def _window(window: SteadyWindow) -> tuple[str, ...]:
    if window.mean is None:
        return (f"{window.last}", "–", "–", "–", "no: too few rounds")
    # With a tenth of a per cent, which tells 20.4 % from the limit.
    spread = ("–" if share is None else f"{fmt.number(share * 100, 1)} %" for share in (window.range, window.slope))
    mean = fmt.quantity(window.mean, window.unit)
    return (f"{window.first} to {window.last}", mean, *spread, "yes" if window.steady else "no")


def power_cut_tables(cuts: Sequence[PowerCuts]) -> tuple[Table, ...]:
    """A line a set-up; none if no power was cut."""
    if not cuts:
        return ()
    factors = tuple(cuts[0].levels) or ("set-up",)
    rows = tuple((*(tuple(each.levels.values()) or (str(each.cell),)), *_cuts(each)) for each in cuts)
    found = ("moments that broke it", "95 % interval", "at risk")
    return (Table("Power cuts", (*factors, *found), rows, len(factors), _CUTS),)


def _cuts(each: PowerCuts) -> tuple[str, str, str]:
    if each.why:
        return noted("no result", [each.why]), "", ""
    low, high = each.interval
    return noted(each.sentence, each.notes), f"{fmt.share(low)} to {fmt.share(high)}", str(each.at_risk)


def power_cut_facts(cuts: Sequence[PowerCuts]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {"cell": each.cell, "levels": dict(each.levels), "moments": each.moments, "at_risk": each.at_risk}
        | ({"reason": each.why} if each.why else {"broken": each.broken, "interval": list(each.interval)})
        for each in cuts
    ]


def safety_table(cuts: Sequence[PowerCuts], primary: Sequence[Estimate]) -> Table | None:
    """Speed and safety side by side, a row a set-up; ``None`` if no power was cut, or nothing is asked about."""
    asked = [e for e in primary if (e.source, e.metric) == (primary[0].source, primary[0].metric)]
    if not cuts or not asked:
        return None
    shared, factors = split_levels([e.levels for e in asked])
    unit = fmt.common_scale([e.mean for e in asked], asked[0].unit)
    found = {each.cell: each for each in cuts}
    ordered = sorted(asked, key=lambda e: e.mean, reverse=asked[0].better == "higher")
    rows = tuple(
        (
            *(e.levels.get(name, "") for name in factors),
            fmt.plus_minus(e.mean, e.unit, e.low, e.high, within=unit),
            _after_cut(found.get(e.cell)),
        )
        for e in ordered
    )
    columns = (*factors, asked[0].metric, "after a power cut")
    where = heading("Speed and safety", asked[0].source, shared)
    return Table(where, columns, rows, max(1, len(factors)), words.direction(asked[0].better))


def _after_cut(each: PowerCuts | None) -> Cell:
    if each is None:
        return Cell("− not checked", tone="missing")
    if each.why:
        return noted("− no result", [each.why], "missing")
    if each.broken:
        return noted(f"✗ broken by {each.broken} of {each.moments} cuts", each.notes, "hit")
    return noted(f"✓ kept in all {each.moments} cuts", each.notes, "passed")


def safety_sentence(cuts: Sequence[PowerCuts], levels: Mapping[int, Mapping[str, str]]) -> str:
    """ "After a power cut, ext4 was broken by 27 of 30 cuts; xfs kept everything."; empty if no power was cut."""

    def name(each: PowerCuts) -> str:
        of = levels.get(each.cell, each.levels)
        return ", ".join(words.named(factor, level) for factor, level in of.items()) or "it"

    broken = [f"{name(each)} was broken by {each.broken} of {each.moments} cuts" for each in cuts if each.broken]
    kept = words.listed([name(each) for each in cuts if not each.broken and not each.why])
    said = "; ".join([*broken, *([f"{kept} kept everything"] if kept else [])])
    return f"After a power cut, {said}." if said else ""


def packet_tables(packets: Iterable[Packets], shown: Iterable[str]) -> list[Table]:
    """Packets that were kept of each cell, a line each, as tcpdump prints them; ``shown``: of these factors' levels."""
    kept = set(shown)
    tables = []
    for each in packets:
        levels = words.levels({name: level for name, level in each.levels.items() if name in kept})
        title = f"Packets: {', '.join(filter(None, (levels, each.node)))}"
        rows = tuple((line,) for line in each.lines)
        tables.append(Table(title, ("packet",), rows, 1, f"as a capture: {each.path}"))
    return tables


def profile_lines(profiles: Sequence[CpuProfile]) -> tuple[Sentences, ...]:
    """The widest commands of each cell, with their shares of CPU."""
    lines = tuple(Line(f"{profile_title(each, profiles)}: {tops(each)}.", "·") for each in profiles)
    return (Sentences(lines),) if lines else ()


def profile_title(each: CpuProfile, profiles: Sequence[CpuProfile]) -> str:
    several = len({of.node for of in profiles}) > 1
    return ", ".join(filter(None, (words.levels(each.levels), each.node if several else ""))) or "CPUs"


def tops(each: CpuProfile) -> str:
    found = [box for box in each.boxes if box.depth == 0][:_TOPS]
    return ", ".join(f"{box.name} {box.right - box.left:.0%}" for box in found)


def capped(given: ReportInput) -> list[str]:
    """A sentence for each tunable that had less effect than was asked for, as another or the machine caps it."""
    known = [state for state in given.summary.cells if state.cell in given.facts]
    found = (
        (said, cell)
        for cell, nodes in given.facts.items()
        for layers in nodes.values()
        for facts in layers.values()
        for said in _allocators(facts)
    )
    return [f"{among(cells, known)}: {said}" for said, cells in grouped(found).items()]


def _allocators(facts: Facts) -> Iterator[str]:
    """Of a pool; the facts may be of an imported run, so each is looked at."""
    of = facts.get("allocators")
    if not isinstance(of, Mapping):
        return
    asked, effective, limit, cpus = (of.get(name) for name in ("asked", "effective", "limited_by", "cpus"))
    if isinstance(asked, int) and isinstance(effective, int) and effective < asked:
        module = facts.get("module")
        value = module.get(limit) if isinstance(module, Mapping) and isinstance(limit, str) else None
        known = isinstance(value, int) and isinstance(cpus, int)
        because = f": {limit} = {value} with {cpus} CPU{'' if cpus == 1 else 's'}" if known else ""
        yield f"spa_num_allocators: {asked} asked for, {effective} in effect{because}"
