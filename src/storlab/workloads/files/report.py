"""What ``storlab-agent files`` prints, as measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import ge
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from storlab.base.errors import CommandFailed, DiskFull, ParseError
from storlab.base.units import shown
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Value, percentile_name
from storlab.percentiles import percentiles_of_each
from storlab.workloads.base import bytes_of, elapsed_values, read_exit, unfinished
from storlab.workloads.files.options import CALLS, DURABLE, METRICS, syncfs

_FULL = {"ENOSPC": "no space (or no inode) left on the file system", "EDQUOT": "the disk quota is used up"}
_DATA = {"create": "write", "read": "read"}  # phases that move data, and the way

Count = Annotated[int, Field(ge=0, lt=2**62)]
PhaseName = Literal["mkdir", "create", "read", "stat", "delete", "rmdir"]
OperationName = Literal[
    "mkdir", "create", "open", "write", "sync", "sync-directory", "close", "read", "stat", "delete", "rmdir"
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Operation(_Part):
    """How long operations of one kind took, ns; ``bins``: lower bound, upper bound, count."""

    count: Annotated[int, Field(ge=1, lt=2**62)]
    sum_ns: Count
    min_ns: Count
    max_ns: Count
    bins: list[tuple[Count, Count, Count]]

    @model_validator(mode="after")
    def _adds_up(self) -> Operation:
        lower, upper, counts = zip(*self.bins, strict=True) if self.bins else ((), (), ())
        if sum(counts) != self.count:
            raise ValueError("the bins do not hold as many operations as there were")
        if any(map(ge, lower, upper)):
            raise ValueError("a bin without a width")
        return self


class Phase(_Part):
    """What all workers did. ``workers``: files and ns of each; ``progress``: files in each slot of time."""

    phase: PhaseName
    start_ns: Count
    elapsed_ns: Count
    files: Count
    bytes: Count
    limited: bool
    workers: list[tuple[Count, Count]]
    progress: list[Count]
    operations: dict[OperationName, Operation]


class Step(_Part):
    """A ``syncfs`` after a phase, or caches dropped before it."""

    phase: PhaseName
    start_ns: Count
    elapsed_ns: Count


class Failure(_Part):
    """What ended it: an ``errno`` by name, or a ``mismatch`` in words."""

    phase: PhaseName
    operation: str
    path: str
    errno: str | None = None
    mismatch: str | None = None


class Document(_Part):
    """Everything that is printed."""

    format: Literal[1]
    error: Failure | None
    phases: list[Phase]
    syncs: list[Step]
    drops: list[Step]
    slot_ns: Annotated[int, Field(ge=1, lt=2**62)]


def read_results(raw: Path, notes_file: Path) -> Measurements:
    """All that one trial left. ``notes_file`` has sentences that become warnings, one a line.

    Raises ``DiskFull`` or ``CommandFailed`` with the path, ``TimedOut``, ``ParseError``.
    """
    output, notes = bytes_of(raw / "stdout"), bytes_of(notes_file).decode(errors="replace").splitlines()
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if not output:
        raise unfinished("files", ended, said)
    document = read_document(output, str(raw / "stdout"))
    _raise_error(document, notes)
    if ended.code != 0:
        raise unfinished("files", ended, said)
    return measurements(document, elapsed_values(ended), notes)


def raise_failure(output: bytes, source: str) -> None:
    """Raise what the agent says of its own failure, if it says anything."""
    if output:
        _raise_error(read_document(output, source), ())


def read_document(output: bytes, source: str) -> Document:
    try:
        return Document.model_validate_json(output)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = shown(".".join(map(str, first["loc"])))
        raise ParseError(f"not what storlab-agent files prints: {where}: {first['msg']}", source) from None


def _raise_error(document: Document, notes: Sequence[str]) -> None:
    error = document.error
    if error is None:
        return
    what = f"files: {error.phase}: {error.operation} {error.path}"
    detail = "\n".join(notes)
    if error.errno in _FULL:
        raise DiskFull(f"{what}: {_FULL[error.errno]} ({error.errno})", detail)
    raise CommandFailed(f"{what}: {error.errno or error.mismatch or 'it failed'}", detail)


def measurements(document: Document, others: Sequence[Value] = (), notes: Sequence[str] = ()) -> Measurements:
    """Metrics, series and histograms of a storm that came to its end."""
    bins = _bins(document)
    operation, lower, upper, count = (bins[name].to_numpy() for name in ("operation", "lower", "upper", "count"))
    found = iter(percentiles_of_each(operation, lower, upper, count))
    values = [value for phase in document.phases for value in _of_phase(phase, found)]
    progress = [row for phase in document.phases for row in _progress(phase, document)]
    ended = [phase for phase in document.phases if phase.limited]
    limited = [f"{phase.phase} was ended at its limit of time, after {phase.files} files" for phase in ended]
    return Measurements(
        metric_frame([*values, *_of_syncs(document), *others]),
        pl.DataFrame(progress, SERIES_COLUMNS, orient="row"),
        bins[:, :-1],
        (*notes, *limited),
    )


def _bins(document: Document) -> pl.DataFrame:
    """``HISTOGRAM_COLUMNS`` of all operations, and which of them each bin is of, from 0 on in ``operation``."""
    operations = [operation for phase in document.phases for operation in phase.operations.items()]
    rows = [
        (None, f"{name}.latency", lower / 1e9, upper / 1e9, count, number)
        for number, (name, each) in enumerate(operations)
        for lower, upper, count in each.bins
    ]
    return pl.DataFrame(rows, schema={**HISTOGRAM_COLUMNS, "operation": pl.Int64()}, orient="row")


def _of_phase(phase: Phase, percentiles: Iterator[Mapping[float, float]]) -> Iterator[Value]:
    """``percentiles``: those of the operations that are still to come, this phase's first."""
    name = phase.phase
    yield METRICS[f"{name}.files"].value(phase.files)
    yield METRICS[f"{name}.time"].value(phase.elapsed_ns / 1e9)
    yield from _rates(name, phase.files, phase.elapsed_ns, None)
    if len(phase.workers) > 1:
        for number, (files, elapsed) in enumerate(phase.workers, start=1):
            yield from _rates(name, files, elapsed, f"worker.{number}")
    if name in _DATA:
        yield METRICS[f"{_DATA[name]}.bytes"].value(phase.bytes)
        if phase.elapsed_ns:
            yield METRICS[f"{_DATA[name]}.bandwidth"].value(phase.bytes / phase.elapsed_ns * 1e9)
    for operation, each in phase.operations.items():
        yield from _latency(operation, each, next(percentiles))


def _rates(name: str, files: int, elapsed_ns: int, job: str | None) -> Iterator[Value]:
    if elapsed_ns:
        yield METRICS[f"{name}.rate"].value(files / elapsed_ns * 1e9, job)


def _latency(name: str, each: Operation, percentiles: Mapping[float, float]) -> Iterator[Value]:
    if name in CALLS:
        yield METRICS[f"{name}.ios"].value(each.count)
    found = {"mean": each.sum_ns / each.count / 1e9, "min": each.min_ns / 1e9, "max": each.max_ns / 1e9}
    for statistic, seconds in (found | {percentile_name(p): value for p, value in percentiles.items()}).items():
        yield METRICS[f"{name}.latency.{statistic}"].value(seconds)


def _of_syncs(document: Document) -> Iterator[Value]:
    """How long each ``syncfs`` took, and how many files a second were created until all were on disk."""
    created = {phase.phase: phase for phase in document.phases}.get("create")
    for step in document.syncs:
        yield syncfs(step.phase).value(step.elapsed_ns / 1e9)
        if step.phase == "create" and created is not None and created.elapsed_ns + step.elapsed_ns:
            elapsed = (created.elapsed_ns + step.elapsed_ns) / 1e9
            yield DURABLE.value(created.files / elapsed)


def _progress(phase: Phase, document: Document) -> Iterator[tuple[str | None, str, float, float, str]]:
    slot = document.slot_ns / 1e9
    for number, files in enumerate(phase.progress[:-1], start=1):
        yield None, f"{phase.phase}.rate", phase.start_ns / 1e9 + number * slot, files / slot, "1/s"
