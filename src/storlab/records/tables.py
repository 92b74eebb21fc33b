"""The tables of a run: rows that each trial adds, with what was found in series and how probes watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from storlab.base.text import grouped
from storlab.findings import AnyFinding, InTrials
from storlab.measurements import CHECK_COLUMNS, HISTOGRAM_COLUMNS, METRIC_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS
from storlab.metrics import WHISKERS, Declarations, MetricSpec, Specs
from storlab.records.derived import changed_settings, fairness_of, in_memory
from storlab.records.run_folder import Host, TrialRecord
from storlab.timeseries import variability
from storlab.timeseries.findings import Examined, SeriesFindings, remarks

if TYPE_CHECKING:
    from storlab.study.cells import Cell


# The columns of a run's tables, but for those of ``trials``, which depend on the study's factors.

PLACES: dict[str, pl.DataType] = {
    **dict.fromkeys(("trial", "round", "cell"), pl.Int64()),
    **dict.fromkeys(("node", "source"), pl.String()),
}
"""Where something was measured: what every row begins with."""

_FINDINGS: dict[str, pl.DataType] = {
    **dict.fromkeys(("metric", "unit"), pl.String()),
    "n": pl.Int64(),
    **dict.fromkeys(("interval", "duration", "mean", "variance", "sigma", "cv"), pl.Float64()),
    "outliers": pl.Int64(),
    **dict.fromkeys(("longest_stall", "effective", "steady_snia", "steady_fio", "warm_up"), pl.Float64()),
    **dict.fromkeys(("warm_up_effect", "drift", "drift_low", "drift_high", "drift_share", "drift_steps"), pl.Float64()),
    "changes": pl.List(pl.Struct(dict.fromkeys(("t", "before", "after", "moved"), pl.Float64()))),
}
"""Those of ``timeseries.findings.SeriesFindings``."""

COLUMNS: dict[str, dict[str, pl.DataType]] = {
    "metrics": PLACES | METRIC_COLUMNS,
    "series": PLACES | SERIES_COLUMNS,
    "histograms": PLACES | HISTOGRAM_COLUMNS,
    "requests": PLACES | REQUEST_COLUMNS,
    "checks": PLACES | CHECK_COLUMNS,
    "findings": PLACES | _FINDINGS,
}


@dataclass(frozen=True)
class ExaminedSeries:
    """One series of one trial, of all nodes together. ``place`` has the columns of ``PLACES``."""

    place: Mapping[str, object]
    metric: str
    unit: str
    found: SeriesFindings


def findings_frame(examined: Iterable[ExaminedSeries]) -> pl.DataFrame:
    """``findings.parquet``."""
    rows = []
    for each in examined:
        changes = [vars(change) for change in each.found.changes]
        rows.append({**each.place, "metric": each.metric, "unit": each.unit, **vars(each.found), "changes": changes})
    return pl.DataFrame(rows, schema=COLUMNS["findings"])


def remarks_on(examined: Iterable[ExaminedSeries], levels: Mapping[int, str]) -> Iterator[AnyFinding]:
    """What a reader must know of these, over all trials. ``levels``: trial → the levels that it was of, in words."""
    series = ((str(each.place["source"]), each, int(str(each.place["trial"]))) for each in examined)
    return remarks(Examined(of, each.metric, each.found, n, levels.get(n, ""), each.unit) for of, each, n in series)


ROWS = ("metrics", "series", "histograms", "requests", "checks")
"""The tables whose rows come from raw records as they are."""

_DISKS = "disks"  # the same set-up has another loop device in each trial: listed together


@dataclass(frozen=True)
class Observed:
    """How one probe watched one node in one trial of a cell. ``facts`` are of JSON's types."""

    cell: int
    node: str
    probe: str
    facts: Mapping[str, object]


def probe_facts(observed: Iterable[Observed]) -> list[dict[str, object]]:
    """One entry for all that were alike: ``probe``, ``nodes``, ``cells``, ``disks`` of all of them, and the facts."""
    found: list[dict[str, object]] = []
    places: list[tuple[dict[str, None], dict[int, None], dict[str, None]]] = []
    for each in observed:
        key = {"probe": each.probe, **{name: fact for name, fact in each.facts.items() if name != _DISKS}}
        if key not in found:
            found.append(key)
            places.append(({}, {}, {}))
        nodes, cells, disks = places[found.index(key)]
        nodes[each.node] = cells[each.cell] = None
        named = each.facts.get(_DISKS)
        disks.update(dict.fromkeys(map(str, named if isinstance(named, list | tuple) else ())))
    return [
        {"probe": key.pop("probe"), "nodes": [*nodes], "cells": sorted(cells), _DISKS: sorted(disks), **key}
        for key, (nodes, cells, disks) in zip(found, places, strict=True)
    ]


LoadFacts = tuple[int, str, Mapping[str, object]]
"""Cell, load, and what its program said of itself and of what it did: versions, sizes."""


def load_facts(told: Iterable[LoadFacts]) -> list[dict[str, object]]:
    """One entry for all cells in which a load was alike: ``load``, ``cells``, and the facts.

    A fact of a cell is what is the same in all of its trials and on all of their nodes.
    """
    of_cell: dict[tuple[str, int], dict[str, object]] = {}
    for cell, load, facts in told:
        plain: dict[str, object] = {n: fact for n, fact in facts.items() if isinstance(fact, str | int | float)}
        known = of_cell.setdefault((load, cell), plain)
        of_cell[load, cell] = {name: fact for name, fact in known.items() if plain.get(name) == fact}
    alike = grouped(((load, tuple(facts.items())), cell) for (load, cell), facts in of_cell.items() if facts)
    return [{"load": load, "cells": sorted(cells), **dict(own)} for (load, own), cells in alike.items()]


def together(found: Iterable[AnyFinding]) -> list[AnyFinding]:
    """Each once; what is found alike in several trials, once for all of them."""
    every = list(dict.fromkeys(found))
    trials = grouped((each.finding, each) for each in every if isinstance(each, InTrials))

    def whole(each: AnyFinding) -> AnyFinding:
        if not isinstance(each, InTrials):
            return each
        return InTrials(tuple(sorted(n for same in trials[each.finding] for n in same.trials)), each.finding)

    return list(dict.fromkeys(map(whole, every)))


Declared = tuple[str, tuple[MetricSpec, ...]]
"""A source, and what its metrics are."""


@dataclass
class Notes:
    """What there is to say of one trial, beside its rows."""

    warnings: list[AnyFinding] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    loads: list[LoadFacts] = field(default_factory=list)


@dataclass
class TrialTables:
    """The rows that one trial adds to the tables, or several at once. ``notes``: by trial."""

    metrics: list[pl.DataFrame] = field(default_factory=list)
    series: list[pl.DataFrame] = field(default_factory=list)
    histograms: list[pl.DataFrame] = field(default_factory=list)
    requests: list[pl.DataFrame] = field(default_factory=list)
    checks: list[pl.DataFrame] = field(default_factory=list)
    examined: list[ExaminedSeries] = field(default_factory=list)
    notes: dict[int, Notes] = field(default_factory=dict)

    def declared(self) -> Iterator[Declared]:
        return (each for notes in self.notes.values() for each in notes.declared)

    @classmethod
    def joined(cls, parts: Sequence[TrialTables]) -> TrialTables:
        """Those of all ``parts``, which have different trials, in the order of trials."""
        if len(parts) == 1:
            return parts[0]
        rows = {name: [frame for part in parts for frame in getattr(part, name) if frame.height] for name in ROWS}
        examined = (each for part in parts for each in part.examined)
        notes = {trial: notes for part in parts for trial, notes in part.notes.items()}
        return cls(
            **{name: [pl.concat(each).sort("trial", maintain_order=True)] for name, each in rows.items() if each},
            examined=sorted(examined, key=lambda each: int(str(each.place["trial"]))),
            notes=dict(sorted(notes.items())),
        )


def derived(specs: Iterable[MetricSpec], nodes: int = 2, whiskers: float = WHISKERS) -> Iterator[MetricSpec]:
    """What follows from the metrics of one source, which so many nodes have."""
    for spec in specs:
        if spec.quantity == "throughput":
            of_nodes, of_jobs = fairness_of(spec.name)[:2], fairness_of(spec.name)[2:]
            yield from of_nodes if nodes > 1 else ()
            yield from of_jobs if spec.by_job else ()
            yield from variability.declares(spec, whiskers) if spec.series else ()


def host_names(hosts: Iterable[Host]) -> dict[Host, str]:
    """What each machine is called in tables: its name, with what else it takes to tell apart those of one name."""
    known = dict.fromkeys(hosts)
    of_name = grouped((host.name, host) for host in known)
    return {
        host: host.name if len(of_name[host.name]) == 1 else f"{host.name} ({host.machine[:8] or 'no machine id'})"
        for host in known
    }


def trials_frame(records: Iterable[TrialRecord], factors: Iterable[str]) -> pl.DataFrame:
    """``trials.parquet``."""
    names, records = list(factors), list(records)
    hosts = host_names(host for record in records for host in record.hosts)
    schema: dict[str, pl.DataType] = {
        **dict.fromkeys(("trial", "round", "cell", "block"), pl.Int64()),
        **dict.fromkeys(("status", "reason"), pl.String()),
        "started": pl.Datetime("us", "UTC"),
        **dict.fromkeys(("duration", "measured", "start_skew", "start_skew_error"), pl.Float64()),
        "slices": pl.Int64(),
    }
    rows = [
        (
            *(getattr(r, name) for name in schema),
            "+".join(hosts[host] for host in r.hosts) or None,
            *(r.levels.get(name) for name in names),
        )
        for r in records
    ]
    schema["host"] = pl.String()
    schema |= {f"factor.{name}": pl.String() for name in names}
    return pl.DataFrame(rows, schema=schema, orient="row")


@dataclass
class Tables:
    """The tables of a run, trial by trial. Holds what was parsed, so that each raw file is read once."""

    cells: Mapping[int, Cell]
    factors: tuple[str, ...]
    origin: str | None = None
    """The fingerprint of what all trials have in common, as it was before any was parsed; without one, none is kept."""
    records: list[TrialRecord] = field(default_factory=list)
    parts: list[TrialTables] = field(default_factory=list)
    fingerprints: dict[int, str] = field(default_factory=dict)
    """Of the trials whose tables may be kept: of what they came from."""
    whiskers: float = WHISKERS
    """Interquartile ranges from the quartiles beyond which a sample is an outlier."""

    def add(self, part: TrialTables, came_from: Mapping[int, str | None]) -> None:
        """The rows of trials whose records are there already. ``came_from``: their fingerprints, by trial."""
        self.parts.append(part)
        self.fingerprints |= {trial: mark for trial, mark in came_from.items() if mark is not None}

    def notes(self) -> Iterator[tuple[int, Notes]]:
        return (each for part in self.parts for each in part.notes.items())

    def frame(self, name: str) -> pl.DataFrame:
        if name == "trials":
            return trials_frame(sorted(self.records, key=lambda record: record.trial), self.factors)
        if name == "findings":
            return findings_frame(self._examined())
        frames = [frame for part in self.parts for frame in getattr(part, name) if frame.height]
        return pl.concat(frames) if frames else pl.DataFrame(schema=COLUMNS[name])

    def warnings(self) -> tuple[AnyFinding, ...]:
        """What parsing had to say, each once, in order, and what was found in series, over all trials."""
        said = (warning for _, notes in self.notes() for warning in notes.warnings)
        recorded = (warning for record in self.records for warning in record.warnings)
        levels = {record.trial: ", ".join(record.levels.values()) for record in self.records}
        cells = {record.cell: record.levels for record in self.records}
        cached = in_memory(self.frame("metrics"), cells)
        changed = changed_settings(self.records)
        return tuple(together([*changed, *cached, *said, *recorded, *remarks_on(self._examined(), levels)]))

    def probe_facts(self) -> list[dict[str, object]]:
        return probe_facts(each for _, notes in self.notes() for each in notes.observed)

    def load_facts(self) -> list[dict[str, object]]:
        return load_facts(each for _, notes in self.notes() for each in notes.loads)

    def declared(self) -> Declarations:
        own = Declarations.union(each for part in self.parts for each in part.declared())
        return Declarations(
            {source: Specs((*specs, *derived(specs, whiskers=self.whiskers))) for source, specs in own.items()}
        )

    def _examined(self) -> Iterator[ExaminedSeries]:
        return (each for part in self.parts for each in part.examined)
