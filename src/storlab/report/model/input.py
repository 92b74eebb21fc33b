"""What a report is made of: one run's summary, tables and manifest; what the study asks about, and cautions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, TypeVar

import polars as pl

from storlab.analysis.data import Knee, Line, Objective
from storlab.analysis.summary import BlockIO, CellState, Distribution, Estimate, SteadyWindow, Summary
from storlab.analysis.unequal import Held, Unequal
from storlab.base.text import grouped, one_line
from storlab.metrics import PROBE, Declarations, named
from storlab.records.manifest import Manifest
from storlab.records.tables import COLUMNS
from storlab.report.language import format as fmt
from storlab.report.language import words

if TYPE_CHECKING:
    from storlab.probes.stacks import Box


# What was measured under settings that nobody declared, as the sentences that a report begins with.

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


_INTEGERS, _TEXTS = (
    dict.fromkeys(("trial", "round", "cell"), pl.Int64()),
    dict.fromkeys(("status", "reason"), pl.String()),
)
_TRIALS: dict[str, pl.DataType] = {**_INTEGERS, **_TEXTS}

Facts = Mapping[str, object]
P = TypeVar("P", CellState, Estimate, Distribution, BlockIO, SteadyWindow, Line, Knee, Objective)


def _no_rows(columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


@dataclass(frozen=True)
class PowerCuts:
    """What power cuts left of one set-up. ``kinds``: at how many moments what was broken; ``interval``: of the share.

    ``why``: why there is no result, else empty; ``notes``: what else to know.
    """

    cell: int
    levels: Mapping[str, str]
    moments: int = 0
    at_risk: int = 0
    broken: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    interval: tuple[float, float] = (0.0, 1.0)
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """``2 of 30: 2 lost``."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"{self.broken} of {self.moments}{f': {kinds}' if kinds else ''}"


@dataclass(frozen=True)
class Packets:
    """Those of one trial of a cell. ``path``: where they lie as a capture, in the run's folder."""

    levels: Mapping[str, str]
    node: str
    lines: tuple[str, ...]
    path: str


@dataclass(frozen=True)
class CpuProfile:
    """Where the CPUs of one node were in one cell, all of its trials together, as nested boxes."""

    cell: int
    levels: Mapping[str, str]
    node: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class ReportInput:
    """All that a report shows. Whatever is missing or empty is left out of the report, never guessed.

    The frames have the columns of ``docs/reference/records.md``. ``facts`` is cell → node → layer → what that layer
    really was; ``guests`` is cell → node → what that virtual machine was; ``declared``: what the metrics are.
    """

    summary: Summary
    trials: pl.DataFrame = field(default_factory=lambda: _no_rows(_TRIALS))
    metrics: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["metrics"]))
    series: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["series"]))
    histograms: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["histograms"]))
    checks: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["checks"]))
    findings: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["findings"]))
    declared: Declarations = field(default_factory=Declarations)
    manifest: Manifest | None = None
    facts: Mapping[int, Mapping[str, Mapping[str, Facts]]] = field(default_factory=dict)
    guests: Mapping[int, Mapping[str, Facts]] = field(default_factory=dict)
    power_cuts: tuple[PowerCuts, ...] = ()
    packets: tuple[Packets, ...] = ()
    profiles: tuple[CpuProfile, ...] = ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences that nobody may overlook in the first lines."""
        comparisons = self.summary.comparisons
        missing = words.unanswered(comparisons, [c.gates for c in comparisons])
        unequal = unequal_sentences(self.summary.unequal, self.summary.cells)
        return (*words.unsteady(self.summary), *missing, *(self.manifest.cautions if self.manifest else ()), *unequal)

    @property
    def study(self) -> str:
        return self.manifest.study_text if self.manifest else ""

    @property
    def commands(self) -> list[str]:
        """Shell lines, each of one line, that repeat the run: as it was started, and with the same order."""
        if self.manifest is None:
            return []
        argv = list(self.manifest.argv)
        if argv and PurePath(argv[0]).name == "storlab":
            argv[0] = "storlab"  # wherever it was installed
        lines = [shlex.join(argv)] if argv else []
        if self.manifest.study_file and "--seed" not in argv:
            again = argv if argv[1:2] == ["run"] else ["storlab", "run", self.manifest.study_file]
            lines.append(shlex.join([*again, "--seed", str(self.manifest.seed)]))
        return [one_line(line) for line in lines]

    @property
    def title(self) -> str:
        return self.summary.title or (self.manifest.title if self.manifest else "") or "Untitled study"


def for_people(given: ReportInput) -> ReportInput:
    """``given`` with the units by which people know its metrics, such as IOPS; programs read base units.

    Without the factors that have one level, where others tell the cells apart: no heading needs them.
    """
    summary = _distinguished(given.summary)
    named = replace(
        summary,
        estimates=tuple(replace(e, unit=fmt.unit_of(e.metric, e.unit)) for e in summary.estimates),
        by_node=tuple(replace(e, unit=fmt.unit_of(e.metric, e.unit)) for e in summary.by_node),
        comparisons=tuple(replace(c, unit=fmt.unit_of(c.metric, c.unit)) for c in summary.comparisons),
        effects=tuple(replace(f, unit=fmt.unit_of(f.metric, f.unit)) for f in summary.effects),
    )
    return replace(given, summary=named, series=_named(given.series), findings=_named(given.findings))


def shared_levels(summary: Summary) -> dict[str, str]:
    """The levels that all cells have; none where no factor has more, and nothing else says what was measured."""
    levels = [cell.levels for cell in summary.cells]
    first = levels[0] if levels else {}
    shared = {name: level for name, level in first.items() if all(each.get(name) == level for each in levels)}
    return shared if len(shared) < len(first) else {}


def _distinguished(summary: Summary) -> Summary:
    shared = shared_levels(summary)
    if not shared:
        return summary
    kept = {name for cell in summary.cells for name in cell.levels} - shared.keys()
    return replace(
        summary,
        cells=_only(kept, summary.cells),
        estimates=_only(kept, summary.estimates),
        by_node=_only(kept, summary.by_node),
        distributions=_only(kept, summary.distributions),
        block_io=_only(kept, summary.block_io),
        steady=_only(kept, summary.steady),
        sweeps=tuple(replace(sweep, lines=_only(kept, sweep.lines)) for sweep in summary.sweeps),
        knees=_only(kept, summary.knees),
        objectives=_only(kept, summary.objectives),
        comparisons=tuple(replace(c, within=_those(kept, c.within)) for c in summary.comparisons),
    )


def _only(kept: Set[str], rows: tuple[P, ...]) -> tuple[P, ...]:
    return tuple(replace(row, levels=_those(kept, row.levels)) for row in rows)


def _those(kept: Set[str], levels: Mapping[str, str]) -> dict[str, str]:
    return {name: level for name, level in levels.items() if name in kept}


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    pairs = frame.select("metric", "unit").unique().iter_rows()
    known = {metric: named for metric, unit in pairs if (named := fmt.unit_of(metric, unit)) != unit}
    return (
        frame if not known else frame.with_columns(unit=pl.col("metric").replace_strict(known, default=pl.col("unit")))
    )


class Measured(Protocol):
    """Anything about one metric of one source: an estimate or a comparison."""

    @property
    def source(self) -> str: ...
    @property
    def metric(self) -> str: ...


M = TypeVar("M", bound=Measured)


def split(primary: str, items: Iterable[M]) -> tuple[list[M], list[M]]:
    """Those that ``primary`` names, and the others. Where it names none, all are as good as primary."""
    everything = list(items)
    keys = set(named(primary, dict.fromkeys((item.source, item.metric) for item in everything)))
    first = [item for item in everything if (item.source, item.metric) in keys]
    others = [item for item in everything if (item.source, item.metric) not in keys]
    return (first, others) if first else (others, [])


def split_primary(summary: Summary) -> tuple[list[Estimate], list[Estimate]]:
    """Estimates of what the study asks about, the primary metric first and then what else it compares; and the rest."""
    compared = {(c.source, c.metric) for c in summary.comparisons}
    everything = [e for e in summary.estimates if not e.source.startswith(PROBE) or (e.source, e.metric) in compared]
    first, others = split(summary.primary, everything)
    asked = [e for e in others if (e.source, e.metric) in compared]
    return first + asked, [e for e in others if (e.source, e.metric) not in compared]


def compared_factor(summary: Summary) -> str:
    """The factor whose levels stand side by side: the first that is compared, else the study's first."""
    for comparison in summary.comparisons:
        return comparison.factor
    return next((name for cell in summary.cells for name in cell.levels), "")


_COMBINED = {name: getattr(pl.col("value"), name)() for name in ("sum", "max", "min", "mean")}
# Percentiles and the like can't be combined: a lone value stands, several give none.
_ALONE = pl.when(pl.len() == 1).then(pl.col("value").first())


def across_of(metrics: pl.DataFrame, source: str, metric: str) -> str:
    """How ``metric`` combines over jobs and nodes; ``sum`` where the metrics don't say."""
    rows = metrics.filter(source=source, metric=metric)
    return str(rows["across"][0]) if rows.height and "across" in rows.columns else "sum"


def combined(rows: pl.DataFrame, keys: list[str], part: str, across: str) -> pl.DataFrame:
    """``value`` by ``keys``, over the ``part`` (``job`` or ``node``).

    The tool's own row for all parts (``part`` is null) goes before anything that is added up here.
    """
    whole = pl.col(part).is_null()
    kept = rows.filter(whole | ~whole.any().over(keys))
    value: pl.Expr = _COMBINED.get(across, _ALONE).alias("value")
    return kept.group_by(keys, maintain_order=True).agg(value).drop_nulls("value")


def per_trial(metrics: pl.DataFrame, source: str, metric: str) -> pl.DataFrame:
    """``trial, round, cell, value``, all nodes and jobs together."""
    across, keys = across_of(metrics, source, metric), ["trial", "round", "cell"]
    nodes = combined(metrics.filter(source=source, metric=metric), [*keys, "node"], "job", across)
    return combined(nodes, keys, "node", across).sort("round")
