"""Files become a run: found, read, given their levels, and written once all of them could be read."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from storlab.base.amounts import plural, shown, size_text
from storlab.base.errors import ParseError, UserError
from storlab.base.limits import IMPORTED_TOGETHER
from storlab.base.reading import open_file
from storlab.base.text import first, printable, storable
from storlab.cli.import_.layouts import Laid, files_by_node, laid_by_kdevops, unfinished
from storlab.cli.import_.options import ImportOptions
from storlab.cli.import_.paths import (
    all_files,
    files_of,
    head_or_all,
    is_folder,
    readable,
    refuse_fixed_order,
    refuse_other_dates,
    without_beside,
)
from storlab.cli.output import show, warn
from storlab.records.files import Text, sync_folder
from storlab.records.held import make_private, new_run_folder
from storlab.records.imported import write_imported
from storlab.records.manifest import NAME as MANIFEST
from storlab.records.run_folder import RunFolder
from storlab.run.recovery.temporary import new_mark, remembered, remove_dead
from storlab.tools.cells import assemble
from storlab.tools.importer import ImportedFile, Importer, Part, importer_of, said_of_files

# The folder of an imported run, which is there once all is in it, or else isn't.

_LONGEST = 63
_LOST = (errno.ENOENT, errno.EACCES, errno.ESTALE)  # of a file that was there when it was read


@contextmanager
def new_import(folder: Path) -> Iterator[RunFolder]:
    """The run's folder. Of a kill, a hidden folder is left, which the next import there removes: beside ``folder`` or,
    where that exists and is empty, in it, for it may be where a file system is mounted.
    """
    try:
        existed = folder.exists()
    except OSError as error:  # a name that no file can have
        raise UserError(f"{printable(str(folder))[:_LONGEST]}… can't be a run's folder: {error.strerror}") from None
    _remove_dead_ones(folder)
    if folder.is_dir():
        try:
            make_private(folder)
        except OSError as error:
            raise UserError(f"{folder} can't be used for the run: {error.strerror}") from None
    mark = new_mark()
    place = (folder if existed else folder.parent) / f".{folder.name}.{mark}.new"
    with new_run_folder(place, named=folder, mark=mark) as holding, remembered(place, mark):
        try:
            yield holding.named
            _take(place, folder, existed)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
                raise UserError(f"{folder} was made by somebody else meanwhile: choose another folder") from None
            if isinstance(error, OSError) and error.errno in _LOST and not _is_in(place, error):
                raise UserError(f"cannot read {error.filename}: {error.strerror}; nothing was imported") from None
            if isinstance(error, OSError):
                raise UserError(f"cannot write {folder}: {error.strerror}; nothing of it is left") from None
            raise


def _take(place: Path, folder: Path, existed: bool) -> None:
    """Move all in ``place`` to ``folder``: at once or, where that exists, the manifest last, which makes it a run."""
    if not existed:
        place.rename(folder)
        sync_folder(folder.parent)
        return
    taken: list[Path] = []
    try:
        for path in sorted(place.iterdir(), key=lambda path: (path.name == MANIFEST, not path.is_dir())):
            taken.append(path.rename(folder / path.name))
    except BaseException:
        for path in reversed(taken):
            path.rename(place / path.name)
        raise
    place.rmdir()
    sync_folder(folder)


def _is_in(place: Path, error: OSError) -> bool:
    return error.filename is None or Path(error.filename).is_relative_to(place)


def _remove_dead_ones(folder: Path) -> None:
    """Remove what imports to the same place have left that were killed. What can't be removed is in nobody's way."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.([0-9a-f]{{16}})\.new", re.DOTALL)
    for around in (folder.parent, folder):
        with contextlib.suppress(OSError):
            for path in list(around.iterdir()):
                if (found := name.fullmatch(path.name)) is not None:
                    with contextlib.suppress(OSError):
                        remove_dead(path, found[1])


_FILE = "file"  # the factor that tells files apart, unless the user names others


def import_files(options: ImportOptions) -> None:
    folder, size = make_run(options)
    where = printable(str(folder))
    show(f"Run: {where}, {size}; `storlab report {where}` shows it")


def make_run(options: ImportOptions) -> tuple[Path, str]:
    """Make a run of the files; returns its folder, and how large it is in words. Nothing is written before all of them
    could be read.

    Refused where they were measured ``interleaved``, by the word of their user, and say otherwise themselves.
    """
    importer, options = importer_of(options.kind), without_beside(options)
    folders = list(filter(is_folder, options.paths))
    found = [files_of(importer, path) for path in options.paths]
    laid = laid_by_kdevops(options.kind, found)
    found = [laid.of(files) for files in found]
    placed = {}
    if importer.by_node:
        own = [files_by_node(path, each, options.nodes) for path, each in zip(options.paths, found, strict=True)]
        placed = {each.path: each for of in own for each in of}
        found = [[each.path for each in of] for of in own]
    elif not (
        importer.repeats or options.labels or options.factors or laid.levels
    ):  # files of a folder are told apart by their names
        found = [[file] for files in found for file in files]
        options = replace(options, paths=[file for (file,) in found])
    files = [path for each in found for path in each]
    if not importer.streams:
        _refuse_too_much(files)
    names = {folder: _names_in(folder) for folder in dict.fromkeys(path.parent for path in files)}
    logs: list[Mapping[str, Path]] = []
    read: list[Sequence[Part]] = []
    texts: list[Text] = []
    for path in files:  # one at a time, since all of them may be more than the memory
        text = head_or_all(path, importer)
        texts.append(Text.of_stream(path) if importer.streams else Text.of_read(path, text))
        others = [name for name in names[path.parent] if name != path.name]
        logs.append({name: path.with_name(name) for name in importer.beside(path.name, text, others)})
        try:
            read.append(_parts(importer, path, text, options.of_kind))
        except ParseError as error:
            raise UserError(str(error)) from None
    by_contents = importer.repeats or (len(files) == 1 and any(part.levels for part in read[0]))
    told_apart = by_contents or bool(laid.levels) or (importer.by_node and len(found) == 1)
    given = levels_of(options.paths, options.labels or [], options.factors or [], told_apart)
    _refuse_said_twice(given[0], laid)
    levels = [each for each, held in zip(given, found, strict=True) for _ in held]
    apart: Sequence[Mapping[str, str]] = [{} for _ in files] if options.interleaved else levels
    if len(files) > 1:
        _refuse_copies(texts, apart)  # no file is of two of the turns
    kept = [
        ImportedFile(
            storable(str(path)),
            {**each, **(placed[path].levels if path in placed else {}), **laid.levels.get(path, {})},
            dict(options.of_kind),
            list(beside),
            placed[path].node if path in placed else "",
        )
        for path, each, beside in zip(files, levels, logs, strict=True)
    ]
    imported = assemble(options.kind, kept, read, options.interleaved, options.clients or importer.by_node)
    imported = structs.replace(imported, notes=(*laid.notes, *imported.notes), whiskers=options.whiskers)
    if options.interleaved:
        refuse_other_dates(imported, files)
        refuse_fixed_order(imported)
    now = datetime.now(UTC)
    identity = f"{now:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    folder = options.out if options.out is not None else Path("runs") / f"{options.kind}-{identity}"
    with new_import(folder) as run:
        write_imported(run, identity, [storable(word) for word in sys.argv], imported, texts, read, logs)
    for path, parts in zip(files, read, strict=True):
        show(printable(f"{path}: {_found(parts)}"))
    for said in said_of_files((str(path), part) for path, parts in zip(files, read, strict=True) for part in parts):
        warn(printable(said))
    for note in () if options.interleaved else imported.notes:
        warn(printable(note))
    used = {*files, *laid.used, *(path for each in logs for path in each.values())}
    for path in folders:
        every = all_files(path)
        left = [str(each.relative_to(path)) for each in every if each not in used]
        for host in unfinished(every) if laid.levels else ():
            warn(printable(f"{host}: it has settings of a run but no result: the run did not finish"))
        if left:  # files of other kinds, and of other tools
            warn(printable(f"{path}: files that were not read: {first(left)}"))
    return folder, f"{plural(len(imported.trials), 'trial')} of {plural(len(imported.cells), 'cell')}"


def _refuse_said_twice(given: Mapping[str, str], laid: Laid) -> None:
    for path, levels in laid.levels.items():
        if both := [name for name in levels if name in given]:
            said = f"for {path}, kdevops' folders already say that it is {levels[both[0]]}"
            raise UserError(f"--factor {both[0]}: {said}: choose another name")


def _names_in(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir() if each.is_file()]
    except OSError:  # a folder may let its files be read and not itself
        return []


def _parts(importer: Importer, path: Path, text: bytes, options: Mapping[str, object]) -> Sequence[Part]:
    said = importer.said_by_name(path)
    with readable(path):
        if importer.streams:
            with open_file(path) as file:
                return importer.read_stream(file, str(path), options)
        parts = importer.read(text, str(path), options)
        parts = importer.read_beside(parts, path.parent, str(path))
    return [replace(part, traits={**part.traits, **said}) for part in parts] if said else parts


def _found(parts: Sequence[Part]) -> str:
    if len(parts) > 1:
        return plural(len(parts), "trial")
    facts = parts[0].found.facts
    short = {name: value for name, value in facts.items() if isinstance(value, str) and "\n" not in value}
    return "; ".join(f"{name} {value}" for name, value in short.items()) or "1 trial"


def levels_of(
    paths: Sequence[Path], labels: Sequence[str], factors: Sequence[str], told_apart: bool = False
) -> list[dict[str, str]]:
    """The levels that the user gives each file.

    ``labels``: one for each file. ``factors``: ``NAME=LEVEL`` for all files, or ``NAME=LEVEL,LEVEL`` one for each.
    Without either, files are told apart by their names, unless what they hold does (``told_apart``). The same label,
    or levels, for several files: these are rounds of one cell, in order. Raises ``UserError``.
    """
    levels: list[dict[str, str]] = [{} for _ in paths]
    for factor in factors:
        name, equals, text = factor.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals:
            raise UserError(f"--factor {shown(factor)}: write NAME=LEVEL, or NAME=LEVEL,LEVEL with one for each file")
        if not name.replace("-", "_").isidentifier() or name.startswith("-") or len(name) > _LONGEST:
            valid = f"at most {_LONGEST} letters, digits, - and _, a letter first"
            raise UserError(f"--factor {shown(factor)}: {shown(name)} is not a valid name: {valid}")
        if name in levels[0]:
            raise UserError(f"--factor {shown(factor)}: {name} was given before")
        if len(values) not in (1, len(paths)):
            raise UserError(f"--factor {shown(factor)}: {len(values)} levels for {plural(len(paths), 'file')}")
        for number, each in enumerate(levels):
            each[name] = _level(f"--factor {name}", values[number % len(values)])
    if labels and len(labels) != len(paths):
        raise UserError(
            f"--label: {plural(len(labels), 'label')} for {plural(len(paths), 'file')}: give one for each, in order"
        )
    if labels or not (factors or told_apart):
        for each, label in zip(levels, labels or _names(paths), strict=True):
            each[_FILE] = _level("--label", label)
    if not (labels or factors or told_apart):
        _refuse_alike(paths, levels)
    return levels


def _names(paths: Sequence[Path]) -> list[str]:
    stems = [printable(path.stem) for path in paths]
    return stems if len(set(stems)) == len(stems) else [printable(str(path)) for path in paths]


def _level(option: str, text: str) -> str:
    if not text or not text.isprintable():
        raise UserError(f"{option}: {shown(text)} can't be a level: it is empty, or not to be printed")
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _refuse_copies(texts: Sequence[Text], levels: Sequence[Mapping[str, str]]) -> None:
    seen: dict[tuple[bytes, tuple[str, ...]], Path] = {}
    for text, each in zip(texts, levels, strict=True):
        first = seen.setdefault((text.digest, tuple(each.values())), text.path)
        if first is not text.path:
            raise UserError(f"{first} and {text.path} are identical: a copy is not a repeat; leave one out")


def _refuse_alike(paths: Sequence[Path], levels: Sequence[dict[str, str]]) -> None:
    seen: dict[tuple[str, ...], Path] = {}
    for path, each in zip(paths, levels, strict=True):
        key = tuple(each.values())
        if key in seen:
            said = ", ".join(f"{name} = {level}" for name, level in each.items())
            raise UserError(
                f"{seen[key]} and {path} are both {said}: tell them apart by --label or --factor, "
                "or say by the same label that they are rounds of one cell"
            )
        seen[key] = path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # who reads it says why
        return 0


def _refuse_too_much(paths: Sequence[Path]) -> None:
    """What was read of all of them is held until the run is made."""
    left = IMPORTED_TOGETHER
    for path in paths:
        if (left := left - _size(path)) < 0:
            most = size_text(IMPORTED_TOGETHER)
            raise UserError(f"{path}: up to here the files have more than {most} together: import fewer at a time")
