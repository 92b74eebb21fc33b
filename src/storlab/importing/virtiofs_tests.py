"""Raw files of virtiofs-tests: a cell for each job of a file, a round for each of its loops.

The tables published from these files show "0kb 0" where a set-up can't do the operation. Here such a trial is
``unsupported``, with what fio said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError
from storlab.formats.fio.terse import TerseReport, terse_values
from storlab.formats.virtiofs_tests import WORKLOADS, FioRun, RawFile, read_raw
from storlab.importing.importer import Importer, Part
from storlab.measurements import HISTOGRAM_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.text import printable

TEST, WORKLOAD = "test", "workload"
"""The factors: which set-up, by its ``TEST_NAME``, and which of the jobs, by its file's name without ``.job``."""

_SERIES, _HISTOGRAMS, _REQUESTS = (empty(each) for each in (SERIES_COLUMNS, HISTOGRAM_COLUMNS, REQUEST_COLUMNS))
_FACTS = ("SYSTEMINFO", "MOUNTPOINT", "VIRTO_SHM_REGIONS", "TESTDIR", "RUNTIME")


class VirtiofsTestsImporter(Importer):
    """A cell for each job of a file, a round for each of its loops."""

    kind: ClassVar[str] = "virtiofs-tests"
    raw_name: ClassVar[str] = "test-data.txt"
    primary: ClassVar[tuple[str, ...]] = ("bandwidth",)
    unknown: ClassVar[str] = "what the job files hold, what else the machines did, nor whether caches were dropped"
    repeats: ClassVar[bool] = True
    published: ClassVar[Mapping[str, Sequence[str]]] = {WORKLOAD: WORKLOADS}

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        file = read_raw(text, source)
        read = [(run, run.report) for run in file.runs if run.report is not None]
        if not read:
            raise ParseError("holds no result of fio: its terse lines (version 3) are missing", source)
        values = [[] if report.error else list(terse_values(report)) for _, report in read]
        metrics = metric_frame(value for each in values for value in each)  # one frame in parts: a third of the time
        starts = accumulate((len(each) for each in values), initial=0)
        parts = [
            _part(file, run, report, metrics.slice(start, len(each)))
            for (run, report), start, each in zip(read, starts, values, strict=False)
        ]
        lost = [f"line {run.number}: {run.workload} has no result" for run in file.runs if run.report is None]
        if lost:
            said = f"{'; '.join(lost)}: cut off, and left out"
            parts[0] = replace(parts[0], found=replace(parts[0].measured, warnings=(said,)))
        return parts


def _part(file: RawFile, run: FioRun, report: TerseReport, metrics: pl.DataFrame) -> Part:
    levels = {TEST: printable(file.head["TEST_NAME"]), WORKLOAD: run.workload}
    said = {name: file.head[name] for name in _FACTS if file.head.get(name)}
    facts: dict[str, object] = {"fio": report.version, **said, **run.facts}
    measured = Measurements(metrics, _SERIES, _HISTOGRAMS, facts=facts, requests=_REQUESTS, declared=report.declared)
    if metrics.is_empty():
        return Part(measured, levels, status="unsupported", reason=run.refusal)
    return Part(measured, levels)
