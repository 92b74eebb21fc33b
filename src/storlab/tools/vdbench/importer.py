"""vdbench's flat file, summary and totals: a trial for each run (``RD=``), its intervals as series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import read_passed_on, under_headings
from storlab.tools.vdbench.flatfile import is_flatfile, read_flatfile
from storlab.tools.vdbench.runs import METRICS, Run
from storlab.tools.vdbench.summary import is_summary, read_summary

_BINARY = b"\0"
_DECLARED = tuple(METRICS.values())


class VdbenchImporter(Importer):
    """Runs with the same name and settings are rounds of one cell. Those that only format are left out."""

    kind: ClassVar[str] = "vdbench"
    raw_name: ClassVar[str] = "vdbench.html"
    primary: ClassVar[tuple[str, ...]] = ("iops", "rate", "bandwidth")
    unknown: ClassVar[str] = "on which machines and storage it ran, nor what else ran meanwhile"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if _BINARY in text:
            raise ParseError("is no output of vdbench: neither a flat file nor a summary", source)
        return read_passed_on(text, lambda shown: _parts(shown, source))


def _parts(text: bytes, source: str) -> Sequence[Part]:
    if is_flatfile(text) and is_summary(text):
        raise ParseError("has the lines of a flat file and those of a summary: save each by itself", source)
    read = read_flatfile if is_flatfile(text) else read_summary
    runs = [run for run in read(text.decode(errors="replace"), source) if run.intervals or run.average]
    if not runs:
        raise ParseError("has no interval of a run of vdbench", source)
    parts = under_headings(text, [(run.line, _part(run)) for run in runs if not run.formats])
    formats = [run.name for run in runs if run.formats]
    if not parts:
        raise ParseError(f"has only runs of vdbench that format ({formats[0]}): nothing was measured", source)
    if formats and parts[0].status == "done":
        warning = f"what only formats is left out: {', '.join(dict.fromkeys(formats))}"
        parts[0] = _warned(parts[0], warning)
    return parts


def _warned(part: Part, warning: str) -> Part:
    measured = part.measured
    found = Measurements(
        measured.metrics,
        measured.series,
        warnings=(*measured.warnings, warning),
        facts=measured.facts,
        declared=measured.declared,
    )
    return Part(found, traits=part.traits)


def _part(run: Run) -> Part:
    traits = {"run": run.name, **run.settings}
    facts: dict[str, object] = dict(traits)
    values = list(run.values())
    if not values:
        reason = f"line {run.line}: vdbench did no operation in {run.name}"
        if not (run.average or run.counted):
            reason = f"line {run.line}: {run.name} was cut short in its warm-up of {run.warm_up:g} s"
        return Part(Measurements(facts=facts), traits=traits, status="failed", reason=reason)
    rows = [(None, metric, time, value, METRICS[metric].unit) for metric, time, value in run.samples()]
    warnings: tuple[str, ...] = ()
    if not run.average:
        but = " without the first" if len(run.intervals) > 1 else ""
        but = f" after {run.warm_up:g} s of warm-up" if run.warm_up else but
        means = f"figures are the means of {len(run.counted)} of its intervals{but}"
        warnings = (f"{run.name} has no average: it was cut short, and {means}",)
    measured = Measurements(
        metric_frame(values),
        series=pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row"),
        warnings=warnings,
        facts=facts,
        declared=_DECLARED,
    )
    return Part(measured, traits=traits)
