"""elbencho's results: phases with the same settings that follow each other are a trial, until one comes again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.tools.elbencho.phases import SYNCED, Phase, in_trials, share_of_reads
from storlab.tools.elbencho.table import is_table, read_table
from storlab.tools.elbencho.text import BEGIN, read_text
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import read_passed_on, under_headings

_TEXT = re.compile(rb"\nOPERATION +RESULT TYPE")
_TABLE = re.compile(rb"\n[^\n]{0,1000},(?:operation,time ms|RuntimeMS,Rank,)")
_BINARY = b"\0"
_UNITS = {"bandwidth": "B/s", "mean": "s"}
"""Of series, by the end of their name; all others are rates."""


class ElbenchoImporter(Importer):
    """CSV of results and of live statistics, and text. Trials with the same settings are rounds."""

    kind: ClassVar[str] = "elbencho"
    raw_name: ClassVar[str] = "elbencho.txt"
    primary: ClassVar[tuple[str, ...]] = (
        *("write.bandwidth", "read.bandwidth", "mixed.write.bandwidth"),
        *("write.rate", "read.rate", "dirs.create.rate", "files.stat.rate", "files.delete.rate"),
    )
    unknown: ClassVar[str] = "on which storage it ran, whether caches were dropped, nor what else ran meanwhile"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if _BINARY in text:
            raise ParseError("is no output of elbencho: neither CSV nor text", source)
        return read_passed_on(text, lambda shown: _parts(shown, source), BEGIN)


def _parts(text: bytes, source: str) -> Sequence[Part]:
    read, other = (read_table, _TEXT) if is_table(text[: 1 << 16]) else (read_text, _TABLE)
    if (found := other.search(text)) is not None:
        line = text.count(b"\n", 0, found.end()) + 1
        raise ParseError("begins another kind of elbencho's files, text or CSV: save each by itself", source, line)
    trials = in_trials(read(text.decode(errors="replace"), source))
    if not trials:
        raise ParseError("has no phase of elbencho but syncs and dropped caches", source)
    return under_headings(text, [(trial[0].line, _part(trial)) for trial in trials])


def _part(phases: Sequence[Phase]) -> Part:
    """A trial. What no phase did is absent; phases that did nothing are named, as elbencho prints zeros of them."""
    values = list(_values(phases))
    warnings = [warning for phase in phases for warning in phase.warnings]
    traits = dict(phases[0].settings)
    mixed = [told for phase in phases if (told := share_of_reads(phase.operation)) is not None]
    if mixed:
        traits["mixed"] = mixed[0]
    started = next((phase.started for phase in phases if phase.started is not None), None)
    facts: dict[str, object] = {"phases": " ".join(phase.operation for phase in phases)}
    measured = Measurements(
        metric_frame(values),
        series=_series(phases),
        histograms=_histograms(phases),
        warnings=tuple(warnings),
        facts=facts | dict(phases[0].settings),
        declared=_declared(phases),
    )
    if not values:
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason="elbencho measured nothing")
    return Part(measured, traits=traits, started=started, lasted=_lasted(phases) if started else None)


def _declared(phases: Sequence[Phase]) -> tuple[MetricSpec, ...]:
    specs = dict.fromkeys(spec for phase in phases if not phase.syncs for spec in phase.declared())
    return (*specs, *((SYNCED,) if any(phase.syncs for phase in phases) else ()))


def _values(phases: Sequence[Phase]) -> Iterator[Value]:
    for phase in phases:
        if not phase.syncs:
            yield from phase.values()
    syncs = [phase.numbers["time"] for phase in phases if phase.syncs and "time" in phase.numbers]
    if syncs:
        yield SYNCED.value(sum(syncs))


def _series(phases: Sequence[Phase]) -> pl.DataFrame:
    """Each phase by the time since it began."""
    rows = [
        (None, metric, time, value, _UNITS.get(metric.rpartition(".")[2], "1/s"))
        for phase in phases
        if not phase.syncs
        for metric, time, value in phase.series
    ]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row").sort("metric", maintain_order=True)


def _histograms(phases: Sequence[Phase]) -> pl.DataFrame:
    rows = [(None, *each) for phase in phases if not phase.syncs for each in phase.bins]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")


def _lasted(phases: Sequence[Phase]) -> float:
    return sum(phase.numbers.get("time", 0.0) for phase in phases)
