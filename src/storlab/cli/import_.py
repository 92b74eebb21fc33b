"""``storlab import``: files of other tools become a run, which ``storlab report`` draws as any other."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storlab.errors import ParseError, UserError
from storlab.records.derive import derive
from storlab.records.imported import Imported, ImportedFile, write_imported
from storlab.records.importers.registry import importer_of
from storlab.records.run_folder import RunFolder, new_run_folder
from storlab.units import printable, shown

_FILE = "file"  # the factor that tells files apart, unless the user names others
_LONGEST = 63
_LARGEST = 256 * 1024**2  # bytes; no tool that is imported from writes a larger one


def import_files(
    kind: str,
    paths: Sequence[Path],
    out: Path | None,
    labels: Sequence[str],
    factors: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Make a run of ``paths``, one cell each. Nothing is written before all of them could be read."""
    importer = importer_of(kind)
    texts = [_read(path) for path in paths]
    levels = levels_of(paths, labels, factors)
    files = tuple(ImportedFile(str(path), each, dict(options)) for path, each in zip(paths, levels, strict=True))
    try:
        read = [importer.read(text, str(path), options) for text, path in zip(texts, paths, strict=True)]
    except ParseError as error:
        raise UserError(str(error)) from None
    now = datetime.now(UTC)
    identity = f"{now:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    folder = out if out is not None else Path("runs") / f"{kind}-{identity}"
    existed = folder.exists()
    try:
        with new_run_folder(folder) as run:
            write_imported(run, identity, sys.argv, Imported(kind, files), texts)
            derive(run).write(run)
    except OSError:
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    for path, measured in zip(paths, read, strict=True):
        said = "; ".join(f"{name} {value}" for name, value in measured.facts.items() if isinstance(value, str))
        print(printable(f"{path}: {said}"))
        for warning in measured.warnings:
            print(printable(f"{path}: {warning}"), file=sys.stderr)
    print(f"Run: {RunFolder(folder).path}; `storlab report {folder}` shows it")


def levels_of(paths: Sequence[Path], labels: Sequence[str], factors: Sequence[str]) -> list[dict[str, str]]:
    """The levels of each file's cell.

    ``labels``: one for each file. ``factors``: ``NAME=LEVEL`` for all files, or ``NAME=LEVEL,LEVEL`` one for each.
    Without either, files are told apart by their names. Raises ``UserError``.
    """
    levels: list[dict[str, str]] = [{} for _ in paths]
    for factor in factors:
        name, equals, text = factor.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals or not name.isidentifier() or len(name) > _LONGEST:
            raise UserError(f"--factor {shown(factor)}: write NAME=LEVEL, or NAME=LEVEL,LEVEL with one for each file")
        if name in levels[0]:
            raise UserError(f"--factor {shown(factor)}: {name} was given before")
        if len(values) not in (1, len(paths)):
            raise UserError(f"--factor {shown(factor)}: {len(values)} levels for {len(paths)} files")
        for number, each in enumerate(levels):
            each[name] = _level(f"--factor {name}", values[number % len(values)])
    if labels and len(labels) != len(paths):
        raise UserError(f"--label was given {len(labels)} times for {len(paths)} files: give one for each, in order")
    if labels or not factors:
        for each, label in zip(levels, labels or _names(paths), strict=True):
            each[_FILE] = _level("--label", label)
    _refuse_alike(paths, levels)
    return levels


def _names(paths: Sequence[Path]) -> list[str]:
    """File names without their endings, where that tells them apart; else the paths as they were given."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _level(option: str, text: str) -> str:
    if not text or not text.isprintable():
        raise UserError(f"{option}: {shown(text)} can't be a level: it is empty, or not to be printed")
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _refuse_alike(paths: Sequence[Path], levels: Sequence[dict[str, str]]) -> None:
    seen: dict[tuple[str, ...], Path] = {}
    for path, each in zip(paths, levels, strict=True):
        key = tuple(each.values())
        if key in seen:
            said = ", ".join(f"{name} = {level}" for name, level in each.items())
            raise UserError(f"{seen[key]} and {path} are both {said}: tell them apart by --label or --factor")
        seen[key] = path


def _read(path: Path) -> bytes:
    try:
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise UserError(f"{path} is larger than {_LARGEST >> 20} MiB: it is no file of that tool")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None
