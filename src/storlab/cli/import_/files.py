"""Files become a run: found, read, given their levels, and written once all of them could be read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from storlab.amounts import plural, shown, size_text
from storlab.cli.import_.beside import owners, without_beside
from storlab.cli.import_.folder import new_import
from storlab.cli.import_.kdevops import Laid, laid_by_kdevops, unfinished
from storlab.cli.import_.nodes import files_by_node
from storlab.cli.import_.options import ImportOptions
from storlab.cli.import_.refusals import foreign, refuse_fixed_order, refuse_other_dates
from storlab.cli.output import show, warn
from storlab.errors import ParseError, UserError
from storlab.limits import IMPORTED, IMPORTED_FILES, IMPORTED_TOGETHER
from storlab.reading import open_file, read_file
from storlab.records.imported import write_imported
from storlab.records.imported_text import Text, without_bom
from storlab.records.manifest import LOCK
from storlab.records.manifest import NAME as MANIFEST
from storlab.text import first, printable, storable
from storlab.tools.cells import assemble
from storlab.tools.imported import ImportedFile
from storlab.tools.importer import Importer, Part, said_of_files
from storlab.tools.registry import importer_of
from storlab.tools.signatures import HEAD

_FILE = "file"  # the factor that tells files apart, unless the user names others
_LONGEST = 63


def import_files(options: ImportOptions) -> None:
    """Make a run of the files, and say how to see it."""
    folder, size = make_run(options)
    where = printable(str(folder))
    show(f"Run: {where}, {size}; `storlab report {where}` shows it")


def make_run(options: ImportOptions) -> tuple[Path, str]:
    """Make a run of the files; returns its folder, and how large it is in words. Nothing is written before all of them
    could be read.

    Refused where they were measured ``interleaved``, by the word of their user, and say otherwise themselves.
    """
    importer, options = importer_of(options.kind), without_beside(options)
    folders = list(filter(_is_folder, options.paths))
    found = [_files(importer, path) for path in options.paths]
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
        text = _sound_head(path) if importer.streams else _read(path)
        texts.append(Text.of_stream(path) if importer.streams else Text.of_read(path, text))
        logs.append(_beside(importer, path, text, names[path.parent]))
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
        argv = [storable(word) for word in sys.argv]
        write_imported(run, identity, argv, imported, texts, read, logs)
    for path, parts in zip(files, read, strict=True):
        show(printable(f"{path}: {_found(parts)}"))
    _warn(files, read)
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


def _files(importer: Importer, path: Path) -> list[Path]:
    """The path itself, or of a folder all files below it that are the tool's, by name, without what is read along."""
    if not _is_folder(path):
        return [path]
    files = files_in(path)
    known = [each for each in files if importer.knows(head_of(each) if importer.streams else text_of(each))]
    known = [each for each in known if _may_be_named_so(importer, each)] or known
    if not known:
        raise UserError(f"{path}: none of its {plural(len(files), 'file')} is one of {importer.kind}")
    along = owners(importer, known)
    return [each for each in known if each not in along]


def _may_be_named_so(importer: Importer, path: Path) -> bool:
    """A suite's log has the output of its tools, too."""
    try:
        importer.said_by_name(path)
    except ParseError:
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # who reads it says why
        return False


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, of which there is one at least. Raises ``UserError``."""
    try:
        files = all_files(folder)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or folder}: {error.strerror}") from None
    if not files:
        raise UserError(f"{folder}: there is no file in it")
    if len(files) > IMPORTED_FILES:
        raise UserError(f"{folder}: {len(files)} files are in it, more than {IMPORTED_FILES}: import fewer at a time")
    return files


def text_of(path: Path) -> bytes:
    """All of a file, or of one that is too long to be imported how it begins. Raises ``UserError``."""
    head = head_of(path)
    if len(head) < HEAD or path.stat().st_size > IMPORTED:
        return head
    try:
        return read_file(path, IMPORTED)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def head_of(path: Path) -> bytes:
    """How a file begins. Raises ``UserError``."""
    try:
        with open_file(path) as file:
            return file.read(HEAD)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def _names_in(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir() if each.is_file()]
    except OSError:  # a folder may let its files be read and not itself
        return []


def _beside(importer: Importer, path: Path, text: bytes, names: Sequence[str]) -> dict[str, Path]:
    others = [name for name in names if name != path.name]
    return {name: path.with_name(name) for name in importer.beside_named(path.name, text, others)}


def _parts(importer: Importer, path: Path, text: bytes, options: Mapping[str, object]) -> Sequence[Part]:
    said = importer.said_by_name(path)
    try:
        if importer.streams:
            with open_file(path) as file:
                return importer.read_stream(file, str(path), options)
        parts = importer.read(text, str(path), options)
        parts = importer.read_beside(parts, path.parent, str(path))
        return [replace(part, traits={**part.traits, **said}) for part in parts] if said else parts
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}") from None


def all_files(folder: Path) -> list[Path]:
    """All files below a folder, without those of runs of Storlab's in it, which hold copies: 9.json before 10.json.

    Raises ``OSError``.
    """
    files = []
    for at, below, names in os.walk(folder, onerror=_raise):
        if {MANIFEST, LOCK} <= set(names) and Path(at) != folder:
            below.clear()
        else:
            files += [path for path in (Path(at, name) for name in names) if path.is_file()]
    return sorted(files, key=_by_number)


def _by_number(path: Path) -> tuple[list[str | int], Path]:
    """To sort names by the numbers in them, as ``ls -v`` does."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))], path


def _raise(error: OSError) -> None:
    raise error


def _found(parts: Sequence[Part]) -> str:
    if len(parts) > 1:
        return plural(len(parts), "trial")
    facts = parts[0].found.facts
    short = {name: value for name, value in facts.items() if isinstance(value, str) and "\n" not in value}
    return "; ".join(f"{name} {value}" for name, value in short.items()) or "1 trial"


def _warn(files: Sequence[Path], read: Sequence[Sequence[Part]]) -> None:
    for said in said_of_files((str(path), part) for path, parts in zip(files, read, strict=True) for part in parts):
        warn(printable(said))


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
    """File names without their endings, where that tells them apart; else the paths as they were given."""
    stems = [printable(path.stem) for path in paths]
    return stems if len(set(stems)) == len(stems) else [printable(str(path)) for path in paths]


def _level(option: str, text: str) -> str:
    if not text or not text.isprintable():
        raise UserError(f"{option}: {shown(text)} can't be a level: it is empty, or not to be printed")
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _refuse_copies(texts: Sequence[Text], levels: Sequence[Mapping[str, str]]) -> None:
    """Refuse a file that is another one, and would be a round of the same cell: a copy is no repeat."""
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


def _sound_head(path: Path) -> bytes:
    """Of a file that is read piece by piece: what it is instead, is seen before."""
    head = head_of(path)
    if (said := foreign(head)) is not None:
        raise UserError(f"{path} {said}")
    return head


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


def _read(path: Path) -> bytes:
    try:
        text = read_file(path, IMPORTED, pipes=True)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if (said := foreign(text)) is not None:
        raise UserError(f"{path} {said}")
    return without_bom(text)
