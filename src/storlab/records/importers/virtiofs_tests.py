"""Raw files of virtiofs-tests (``run-fio-test.sh``): fio jobs, each run several times, on one mounted folder.

Source: https://github.com/rhvgoyal/virtiofs-tests. A file has a head of ``KEY=VALUE`` lines, then for each job and each
of its loops a line ``Running: fio … JOB.job`` and what fio printed: its messages, a terse line (version 3), its text.
Where fio could not do the operation, the terse line has an errno and zeros; the tables published from these files show
"0kb 0". Here such a trial is ``unsupported``, with what fio said.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError
from storlab.measurements import (
    HISTOGRAM_COLUMNS,
    REQUEST_COLUMNS,
    SERIES_COLUMNS,
    Measurements,
    empty,
    metric_frame,
)
from storlab.records.importers.base import Importer, Part
from storlab.units import printable, shown
from storlab.workloads.fio_terse import TerseReport, read_terse, terse_values

TEST, WORKLOAD = "test", "workload"
"""The factors: which set-up, by its ``TEST_NAME``, and which of the jobs, by its file's name without ``.job``."""

_SERIES, _HISTOGRAMS, _REQUESTS = (empty(each) for each in (SERIES_COLUMNS, HISTOGRAM_COLUMNS, REQUEST_COLUMNS))
_RUNNING = "Running: fio "
_KEY = re.compile(r"([A-Z][A-Z_]*)=(.*)")
_TERSE = re.compile(r"[2-9];fio-[^;]*;")
_ERROR = re.compile(r"fio: pid=\d+, err=(?P<errno>\d+)/file:.*?func=(?P<function>[^,]*), error=(?P<error>.*)")
_ENGINE = re.compile(r"\brw=(?P<rw>[^,]+),.*\bioengine=(?P<engine>[^,]+), iodepth=(?P<depth>\d+)")
_STARTING = re.compile(r"Starting (?P<jobs>\d+) (?:process|thread)")
_FACTS = ("SYSTEMINFO", "MOUNTPOINT", "VIRTO_SHM_REGIONS", "TESTDIR", "RUNTIME")


@dataclass(frozen=True)
class Ran:
    """One fio of such a file: the lines from its ``Running:`` on; ``number`` is that line's, from 1."""

    number: int
    workload: str
    lines: tuple[str, ...]
    whole: bool = True  # false for the last of a file that ends within a line


@dataclass(frozen=True)
class RawFile:
    """One file: what its head says, and every fio that it ran, in order."""

    head: Mapping[str, str]
    runs: tuple[Ran, ...]


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
        Ran(
            start + 1,
            _workload(lines[start], source, start + 1),
            tuple(lines[start + 1 : end]),
            whole or end < len(lines),
        )
        for start, end in zip(starts, ends, strict=True)
    )
    return RawFile(head, tuple(runs))


def _workload(running: str, source: str, number: int) -> str:
    """``randread-psync`` of ``… fio-jobs/randread-psync.job``: fio's own name for the job may be another."""
    name = PurePosixPath(running.split()[-1])
    if name.suffix != ".job":
        raise ParseError("the line `Running: fio …` ends without a job file, such as x.job", source, number)
    return printable(name.stem)


class VirtiofsTestsImporter(Importer):
    """A cell for each job of a file, a round for each of its loops."""

    kind: ClassVar[str] = "virtiofs-tests"
    raw_name: ClassVar[str] = "test-data.txt"
    primary: ClassVar[str] = "bandwidth"
    unknown: ClassVar[str] = "what the job files hold, what else the machines did, nor whether caches were dropped"
    repeats: ClassVar[bool] = True
    folders: ClassVar[bool] = True

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        file = read_raw(text, source)
        reports = [(ran, _terse(ran, source)) for ran in file.runs]
        read = [(ran, report) for ran, report in reports if report is not None]
        values = [[] if report.error else list(terse_values(report)) for _, report in read]
        metrics = metric_frame(value for each in values for value in each)  # one frame in parts: a third of the time
        starts = accumulate((len(each) for each in values), initial=0)
        parts = [
            _part(file, ran, report, metrics.slice(start, len(each)))
            for (ran, report), start, each in zip(read, starts, values, strict=False)
        ]
        if not parts:
            raise ParseError("holds no result of fio: its terse lines (version 3) are missing", source)
        lost = [f"line {ran.number}: {ran.workload} has no result" for ran, report in reports if report is None]
        if lost:
            said = f"{'; '.join(lost)}: cut off, and left out"
            parts[0] = replace(parts[0], measured=replace(parts[0].measured, warnings=(said,)))
        return parts

    def knows(self, head: bytes) -> bool:
        return re.search(rb"^TEST_NAME=", head, re.MULTILINE) is not None and b"\n" + _RUNNING.encode() in head


def _terse(ran: Ran, source: str) -> TerseReport | None:
    """What fio measured; ``None`` where the file ends before all of it was written, or fio was killed."""
    for number, line in enumerate(ran.lines, start=ran.number + 1):
        if _TERSE.match(line):
            if number == ran.number + len(ran.lines) and not ran.whole:
                return None  # even if it has all of its fields: the last one may be a part of one
            return read_terse(line, source, number)
    return None


def _part(file: RawFile, ran: Ran, report: TerseReport, metrics: pl.DataFrame) -> Part:
    levels = {TEST: printable(file.head["TEST_NAME"]), WORKLOAD: ran.workload}
    facts = _facts(file, ran, report)
    measured = Measurements(metrics, _SERIES, _HISTOGRAMS, facts=facts, requests=_REQUESTS)
    if metrics.is_empty():
        return Part(measured, levels, status="unsupported", reason=_reason(ran, report))
    return Part(measured, levels)


def _facts(file: RawFile, ran: Ran, report: TerseReport) -> dict[str, object]:
    """fio's version, what the head says of the set-up, and of the job what fio's messages do."""
    options = next((found for line in ran.lines if (found := _ENGINE.search(line))), None)
    jobs = next((found for line in ran.lines if (found := _STARTING.match(line))), None)
    return {
        "fio": report.version,
        **{name: file.head[name] for name in _FACTS if file.head.get(name)},
        **({} if options is None else options.groupdict()),
        **({} if jobs is None else jobs.groupdict()),
    }


def _reason(ran: Ran, report: TerseReport) -> str:
    said = next((found for line in ran.lines if (found := _ERROR.match(line))), None)
    if said is not None:
        return f"not supported there: {said['function']} failed, {said['error']}"
    if report.error:
        return f"not supported there: fio ended with {errno.errorcode.get(report.error, report.error)}"
    return "fio moved no data, and doesn't say why"
