"""The tables that lie in a run's folder: written there, and believed only where they are what would be derived now.

``tables/kept.json`` says what they came from: see ``of_trial`` and ``of_run``. It is believed where it belongs to
whoever reads it and nobody else may write to it, and the tables where their contents have the checksums that stand in
it. For anything else, as in a folder of somebody else's, a damaged file, or another version of Storlab, tables are
derived again.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct
from polars.exceptions import PanicException, PolarsError

from storlab.base.limits import FILE
from storlab.base.limits import RECORD as LONGEST
from storlab.base.reading import open_file, read_file
from storlab.base.record import Count, to_json
from storlab.findings import AnyFinding, InTrials
from storlab.findings.runs import ProbeUnreadable, RawUnreadable
from storlab.metrics import PROBE, MetricSpec
from storlab.records.files import write_whole
from storlab.records.manifest import Manifest
from storlab.records.run_folder import TABLES, RunFolder, TrialRecord, raw_folder
from storlab.records.tables import COLUMNS, PLACES, ROWS, ExaminedSeries, Notes, Observed, Tables, TrialTables
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


# What tables were derived from, and by what: fingerprints that tell whether deriving again would give the same
# tables.
#
# Of raw files they hold what the kernel says of them, as Git's index does: name, length, inode, and both times.
# Contents can be changed and their time (mtime) set back, but not the time at which the kernel last changed the file
# (ctime, see inode(7)), which is new in every copy as well. So tables are believed only in the place where they were
# derived.

_PACKAGE = "storlab"
_MOST_FILES = 20_000  # of a trial; a load leaves at most half of that


def of_trial(folder: Path, record: TrialRecord) -> str | None:
    """Of a trial that is done: its record, and the raw files that its loads and probes left in ``folder``.

    ``None`` where there is anything but files, for where a link leads may change unseen; or more than anybody left.
    """
    read_back = msgspec.json.decode(to_json(record), type=TrialRecord)  # so that 1 and 1.0 are the same
    seen = hashlib.sha256(to_json(read_back))
    sources = [*record.loads.items(), *((PROBE + probe, nodes) for probe, nodes in record.probes.items())]
    try:
        for count, entry in enumerate(_files(folder, sources)):
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or count == _MOST_FILES:
                return None
            times = status.st_mtime_ns, status.st_ctime_ns
            name = os.fsencode(entry.path.removeprefix(str(folder)))
            seen.update(repr((name, status.st_size, status.st_ino, *times)).encode())
    except OSError:
        return None
    return seen.hexdigest()


def _files(folder: Path, sources: Iterable[tuple[str, Iterable[str]]]) -> Iterator[os.DirEntry[str]]:
    """All that lies below the raw folders of ``sources`` (with the nodes of each), folders aside, in order."""
    left = [str(raw_folder(folder, node, source)) for source, nodes in sources for node in nodes]
    while left:
        try:
            entries = sorted(os.scandir(left.pop()), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue  # of a load that left nothing
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            else:
                yield entry


def of_run(manifest: Manifest, parsers: Iterable[object]) -> str | None:
    """What is the same for all trials: the code that parses, and what the manifest says of how to.

    ``parsers``: workloads, probes, importers, which may be of other packages. ``None`` where some of the code has no
    files that could be looked at.
    """
    packages = sorted({type(parser).__module__.partition(".")[0] for parser in parsers} | {_PACKAGE})
    code = [_code(package) for package in packages]
    if None in code:
        return None
    asked = msgspec.json.encode(
        (
            manifest.run,
            manifest.study_file,
            manifest.study_text,
            manifest.overrides,
            manifest.only,
            manifest.inputs,
            manifest.imported,
        )
    )
    return hashlib.sha256(repr((code, _libraries(), asked)).encode()).hexdigest()


@cache
def _code(package: str) -> str | None:
    """Of all source files of a package, or of a module without one. Versions stay the same in development.

    As it was when this was first asked: a long run may see it change.
    """
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    folder = Path(file).parent
    files = sorted(folder.rglob("*.py")) if Path(file).name == "__init__.py" else [Path(file)]
    seen = hashlib.sha256()
    try:
        for path in files:
            text = path.read_bytes()
            seen.update(f"{path.relative_to(folder)} {len(text)}\n".encode())
            seen.update(text)
    except OSError:
        return None
    return seen.hexdigest() if files else None


def _libraries() -> tuple[str, ...]:
    import numpy as np
    import polars as pl

    return sys.version, np.__version__, pl.__version__, msgspec.__version__


def together(each: Mapping[int, str | None]) -> dict[int, str]:
    """For trials that may need each other's files, one fingerprint of all; none where one of them has none."""
    if None in each.values():
        return {}
    return dict.fromkeys(each, hashlib.sha256(repr(sorted(each.items())).encode()).hexdigest())
