"""The tables that lie in a run's folder: written there, and believed only where they are what would be derived now.

``tables/kept.json`` says what they came from: see ``fingerprint``. It is believed where it belongs to whoever reads it
and nobody else may write to it, and the tables where their contents have the checksums that stand in it. For anything
else, as in a folder of somebody else's, a damaged file, or another version of Storlab, tables are derived again.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct
from polars.exceptions import PanicException, PolarsError

from storlab.findings import AnyFinding, InTrials
from storlab.findings.runs import ProbeUnreadable, RawUnreadable
from storlab.limits import FILE
from storlab.limits import RECORD as LONGEST
from storlab.metrics import MetricSpec
from storlab.reading import open_file, read_file
from storlab.record import Count
from storlab.records.columns import COLUMNS, PLACES
from storlab.records.files import write_whole
from storlab.records.run_folder import TABLES, RunFolder, TrialRecord
from storlab.records.tables import ROWS, ExaminedSeries, Notes, Observed, Tables, TrialTables
from storlab.timeseries.findings import Level, SeriesFindings

_DECLARED = "declared.json"


class _Trial(Struct, frozen=True, forbid_unknown_fields=True):
    fingerprint: str
    warnings: list[AnyFinding]
    observed: list[tuple[Count, str, str, dict[str, Any]]]  # cell, node, probe, facts
    declared: list[Count]  # which of those below
    loads: list[tuple[Count, str, dict[str, Any]]]  # cell, load, facts


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    run: str  # fingerprint of all that is the same for its trials
    files: dict[str, str]  # name → SHA-256 of the contents
    declared: list[tuple[str, tuple[MetricSpec, ...]]]
    trials: dict[int, _Trial]


@dataclass(frozen=True)
class Found:
    """What is kept and is as it would be derived. ``fingerprints``: those of all trials that are in the files."""

    part: TrialTables = field(default_factory=TrialTables)
    fingerprints: Mapping[int, str] = field(default_factory=dict)


NOTHING = Found()


def read_kept(
    run: RunFolder, of_run: str | None, fingerprints: Mapping[int, str], records: Iterable[TrialRecord]
) -> Found:
    """The tables of those trials whose files are what they were: ``fingerprints`` are those of now."""
    try:
        kept = msgspec.json.decode(_own_file(run.kept_path), type=_Kept)
        if of_run is None or kept.run != of_run:
            return NOTHING
        good = [trial for trial, each in kept.trials.items() if fingerprints.get(trial) == each.fingerprint]
        places = {(each.trial, each.round, each.cell) for each in records}
        frames = {name: _frame(name, data, good, places) for name, data in _contents(run, kept)}
        part = _part(kept, good, frames)
    except (OSError, msgspec.MsgspecError, PolarsError, PanicException, ValueError, LookupError, RecursionError):
        return NOTHING  # whatever it is, the raw files are there
    return Found(part, {trial: each.fingerprint for trial, each in kept.trials.items()})


def _own_file(path: Path) -> bytes:
    with open_file(path) as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} may be somebody else's")
        if status.st_size > LONGEST:
            raise ValueError(f"{path} is too long")
        data: bytes | None = file.read(LONGEST)
    if data is None:  # of a file below /proc that waits
        raise ValueError(f"{path} has nothing to read")
    return data


def _contents(run: RunFolder, kept: _Kept) -> Iterator[tuple[str, bytes]]:
    for name in (*TABLES, _DECLARED):
        path = run.declared_path if name == _DECLARED else run.table_path(name)
        data = read_file(path, FILE)
        if hashlib.sha256(data).hexdigest() != kept.files[name]:
            raise ValueError(f"{path} is not what was kept")
        if name in COLUMNS:
            yield name, data


def _frame(name: str, data: bytes, trials: Collection[int], places: set[tuple[int, int, int]]) -> pl.DataFrame:
    frame = pl.read_parquet(io.BytesIO(data))
    if frame.schema != pl.Schema(COLUMNS[name]):
        raise ValueError(f"{name} has other columns")
    if not set(frame["trial"].unique()) <= set(trials):
        frame = frame.filter(pl.col("trial").is_in(list(trials)))
    if not set(frame.select("trial", "round", "cell").unique().iter_rows()) <= places:
        raise ValueError(f"{name} has other rounds or cells than the records")
    return frame


def _part(kept: _Kept, good: list[int], frames: Mapping[str, pl.DataFrame]) -> TrialTables:
    notes = {}
    for trial in sorted(good):
        each = kept.trials[trial]
        observed = [Observed(*place) for place in each.observed]
        declared = [kept.declared[at] for at in each.declared]
        notes[trial] = Notes(each.warnings, observed, declared, [*each.loads])
    examined = [_examined(row) for row in frames["findings"].iter_rows(named=True)]
    return TrialTables(**{name: [frames[name]] for name in ROWS}, examined=examined, notes=notes)


def _examined(row: dict[str, Any]) -> ExaminedSeries:
    place = {name: row.pop(name) for name in PLACES}
    metric, unit = row.pop("metric"), row.pop("unit")
    changes = tuple(Level(**change) for change in row.pop("changes"))
    return ExaminedSeries(place, metric, unit, SeriesFindings(**row, changes=changes))


def write_tables(run: RunFolder, tables: Tables) -> None:
    """Write all tables into the run's folder, and what they came from. Raises ``OSError``."""
    contents = {name: _parquet(tables.frame(name)) for name in TABLES}
    files = {f"{name}.parquet": data for name, data in contents.items()} | {_DECLARED: tables.declared().to_json()}
    run.kept_path.parent.mkdir(exist_ok=True)
    with _held(run.kept_path.parent) as folder:
        for name, data in files.items():
            write_whole(folder / name, data)
        checksums = {name.removesuffix(".parquet"): hashlib.sha256(data).hexdigest() for name, data in files.items()}
        if tables.origin is None:
            (folder / run.kept_path.name).unlink(missing_ok=True)
        else:
            kept = msgspec.json.encode(_kept(tables, tables.origin, checksums))
            write_whole(folder / run.kept_path.name, kept, mode=0o600)


def _kept(tables: Tables, of_run: str, files: dict[str, str]) -> _Kept:
    index: dict[tuple[str, tuple[MetricSpec, ...]], int] = {}
    fingerprints, trials = keepable(tables), {}
    for trial, notes in tables.notes():
        if trial in fingerprints:
            observed = [(each.cell, each.node, each.probe, dict(each.facts)) for each in notes.observed]
            declared = dict.fromkeys(index.setdefault(each, len(index)) for each in notes.declared)
            loads = [(cell, load, dict(facts)) for cell, load, facts in notes.loads]
            trials[trial] = _Trial(fingerprints[trial], notes.warnings, observed, list(declared), loads)
    return _Kept(of_run, files, list(index), trials)


def keepable(tables: Tables) -> dict[int, str]:
    """Fingerprints of the trials that are kept: not of those whose warnings name a file, which may be moved."""
    named = {trial for trial, notes in tables.notes() if any(map(_names_file, notes.warnings))}
    return {trial: fingerprint for trial, fingerprint in tables.fingerprints.items() if trial not in named}


def _names_file(warning: AnyFinding) -> bool:
    return isinstance(warning.finding if isinstance(warning, InTrials) else warning, RawUnreadable | ProbeUnreadable)


def _parquet(frame: pl.DataFrame) -> bytes:
    table = io.BytesIO()  # Polars, writing to a full disk, does not say so in a way that can be told apart
    frame.write_parquet(table)
    return table.getvalue()


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """The folder by its descriptor; a link is not followed, for it may lead anywhere."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
