"""Raw files of virtiofs-tests (``run-fio-test.sh``): fio jobs, each run several times, on one mounted folder.

Source: https://github.com/rhvgoyal/virtiofs-tests. A file has a head of ``KEY=VALUE`` lines, then for each job and each
of its loops a line ``Running: fio … JOB.job`` and what fio printed: its messages, a terse line (version 3), its text.
Where fio could not do the operation, the terse line has an errno and zeros.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import PurePosixPath
from typing import Any, ClassVar

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import printable
from storlab.base.units import shown
from storlab.measurements import HISTOGRAM_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.tools.fio.terse import TerseReport, read_terse, terse_values
from storlab.tools.importer import Importer, Part

PATTERNS = ("seqread", "randread", "seqwrite", "randwrite", "randrw")
ENGINES = ("psync", "mmap", "libaio")
WORKLOADS = tuple(f"{pattern}-{engine}{jobs}" for pattern, engine, jobs in product(PATTERNS, ENGINES, ("", "-multi")))
"""In the order of the tables that it publishes (``parse-fio-results.sh``); each alone, then with several jobs."""

_RUNNING = "Running: fio"
_KEY = re.compile(r"([A-Z][A-Z_]*)=(.*)")
_TERSE = re.compile(r"[2-9];fio-[^;]*;")
_ERROR = re.compile(r"fio: pid=\d+, err=(?P<errno>\d+)/file:.*?func=(?P<function>[^,]*), error=(?P<error>.*)")
_ENGINE = re.compile(r"\brw=(?P<rw>[^,]+),.*\bioengine=(?P<engine>[^,]+), iodepth=(?P<depth>\d+)")
_LONGEST = 2000  # characters of a message of fio's; of more, matching would take time that grows with their square
_STARTING = re.compile(r"Starting (?P<jobs>\d+) (?:process|thread)")


@dataclass(frozen=True)
class FioRun:
    """One fio of such a file, begun at line ``number``, from 1.

    ``report``: what it measured; ``None`` where the file ends before all of it was written, or fio was killed.
    ``facts``: of the job what fio's messages say. ``refusal``: of a run without figures, why it has none.
    """

    number: int
    workload: str
    report: TerseReport | None
    facts: Mapping[str, str]
    refusal: str


@dataclass(frozen=True)
class RawFile:
    """One file: what its head says, and every fio that it ran, in order."""

    head: Mapping[str, str]
    runs: tuple[FioRun, ...]


def read_raw(text: bytes, source: str) -> RawFile:
    """The file in its parts. Raises ``ParseError`` where it is none of virtiofs-tests, with the line."""
    lines = text.decode(errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(_RUNNING)]
    head: dict[str, str] = {}
    for number, line in enumerate(lines[: starts[0] if starts else len(lines)], start=1):
        found = _KEY.match(line)
        if found is not None:
            head[found[1]] = found[2].strip()
        elif line.strip():
            said = f"{shown(line[:40])} is no KEY=VALUE line, with which files of virtiofs-tests begin"
            raise ParseError(said, source, number)
    if "TEST_NAME" not in head or not head["TEST_NAME"]:
        raise ParseError("has no TEST_NAME=: it is no raw file of virtiofs-tests, or only its end", source, 1)
    if not starts:
        raise ParseError("has no line `Running: fio …`: no job was run", source, len(lines))
    ends = [*starts[1:], len(lines)]
    whole = text.endswith(b"\n")
    runs = (
        _run(lines[start:end], source, start + 1, whole or end < len(lines))
        for start, end in zip(starts, ends, strict=True)
    )
    return RawFile(head, tuple(runs))


def _run(lines: Sequence[str], source: str, number: int, whole: bool) -> FioRun:
    if len(lines) == 1 and not whole:  # the file ends within the line, and with it perhaps the job's name
        return FioRun(number, "a job", None, {}, "")
    workload, report = _workload(lines[0], source, number), None
    for at, line in enumerate(lines):
        if _TERSE.match(line):
            if whole or at + 1 < len(lines):  # else its last field may be a part of one
                report = read_terse(line, source, number + at)
            break
    messages = [line for line in lines if len(line) <= _LONGEST]
    options = next((found for line in messages if (found := _ENGINE.search(line))), None)
    jobs = next((found for line in messages if (found := _STARTING.match(line))), None)
    facts = {name: said for found in (options, jobs) if found for name, said in found.groupdict().items()}
    return FioRun(number, workload, report, facts, _refusal(messages, report))


def _workload(running: str, source: str, number: int) -> str:
    """``randread-psync`` of ``… fio-jobs/randread-psync.job``: fio's own name for the job may be another."""
    name = PurePosixPath(running.split()[-1])
    if name.suffix != ".job":
        raise ParseError("the line `Running: fio …` ends without a job file, such as x.job", source, number)
    return printable(name.stem)


def _refusal(lines: Sequence[str], report: TerseReport | None) -> str:
    said = next((found for line in lines if (found := _ERROR.match(line))), None)
    if said is not None:
        return f"not supported there: {said['function']} failed, {said['error']}"
    if report is not None and report.error:
        return f"not supported there: fio ended with {errno.errorcode.get(report.error, report.error)}"
    return "fio moved no data, and doesn't say why"


# Raw files of virtiofs-tests: a cell for each job of a file, a round for each of its loops.
#
# The tables published from these files show "0kb 0" where a set-up can't do the operation. Here such a trial is
# ``unsupported``, with what fio said.

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
            parts[0] = parts[0].warned(said)
        return parts


def _part(file: RawFile, run: FioRun, report: TerseReport, metrics: pl.DataFrame) -> Part:
    levels = {TEST: printable(file.head["TEST_NAME"]), WORKLOAD: run.workload}
    said = {name: file.head[name] for name in _FACTS if file.head.get(name)}
    facts: dict[str, object] = {"fio": report.version, **said, **run.facts}
    measured = Measurements(metrics, _SERIES, _HISTOGRAMS, facts=facts, requests=_REQUESTS, declared=report.declared)
    if metrics.is_empty():
        return Part(measured, levels, status="unsupported", reason=run.refusal)
    return Part(measured, levels)
