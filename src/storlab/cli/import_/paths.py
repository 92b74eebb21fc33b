"""Which files are imported, of those that were named and of folders; and which are refused by how they begin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

from storlab.base.amounts import plural
from storlab.base.errors import ParseError, UserError
from storlab.base.limits import IMPORTED, IMPORTED_FILES
from storlab.base.reading import open_file, read_file
from storlab.base.text import grouped, printable
from storlab.cli.import_.options import ImportOptions
from storlab.records.files import without_bom
from storlab.records.manifest import LOCK
from storlab.records.manifest import NAME as MANIFEST
from storlab.tools.cells import INSTEAD
from storlab.tools.importer import Imported, Importer, importer_of
from storlab.tools.kinds import HEAD


def without_beside(options: ImportOptions) -> ImportOptions:
    """The same without the paths that are read along with another of them.

    Raises ``UserError`` where each path was given a label or a level: such a file can't have one of its own.
    """
    along = owners(importer_of(options.kind), options.paths)
    if along and _one_for_each(options):
        path, owner = next(iter(along.items()))
        raise UserError(
            printable(f"{path} is read along with {owner}, as part of the same run: leave out its name, and its level")
        )
    return replace(options, paths=[path for path in options.paths if path not in along])


def owners(importer: Importer, paths: Sequence[Path]) -> Mapping[Path, Path]:
    """Of each path that is read along with another one, that one."""
    found: dict[Path, Path] = {}
    names = grouped((path.parent, path.name) for path in paths)
    for path in paths:
        others = [name for name in names[path.parent] if name != path.name]
        if not others or path in found or importer.streams or not path.is_file():
            continue
        with readable(path):
            text = read_file(path, IMPORTED)
        for name in importer.beside(path.name, text, others):
            found.setdefault(path.with_name(name), path)
    return found


def _one_for_each(options: ImportOptions) -> bool:
    levels = [factor.partition("=")[2].split(",") for factor in options.factors or []]
    return any(len(each) == len(options.paths) for each in (options.labels or [], *levels))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise ``UserError`` for what can't be read."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot read {error.filename or path}: {error.strerror}") from None


def files_of(importer: Importer, path: Path) -> list[Path]:
    """The path itself, or of a folder all files below it that are the tool's, by name, without what is read along."""
    if not is_folder(path):
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


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # who reads it says why
        return False


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, of which there is one at least. Raises ``UserError``."""
    with readable(folder):
        files = all_files(folder)
    if not files:
        raise UserError(f"{folder}: there is no file in it")
    if len(files) > IMPORTED_FILES:
        raise UserError(f"{folder}: {len(files)} files are in it, more than {IMPORTED_FILES}: import fewer at a time")
    return files


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
    parts = {path: re.split(r"(\d+)", str(path)) for path in files}  # in the order of `ls -v`
    return sorted(files, key=lambda path: ([int(part) if part.isdecimal() else part for part in parts[path]], path))


def _raise(error: OSError) -> None:
    raise error


def head_of(path: Path) -> bytes:
    with readable(path), open_file(path) as file:
        return file.read(HEAD)


def text_of(path: Path) -> bytes:
    """All of a file, or of one that is too long to be imported how it begins. Raises ``UserError``."""
    head = head_of(path)
    if len(head) < HEAD or path.stat().st_size > IMPORTED:
        return head
    with readable(path):
        return read_file(path, IMPORTED)


def head_or_all(path: Path, importer: Importer) -> bytes:
    """What is read of a file at once. Raises ``UserError`` where it is something else than text."""
    if importer.streams:
        text = head_of(path)
    else:
        with readable(path):
            text = read_file(path, IMPORTED, pipes=True)
    if (said := foreign(text)) is not None:
        raise UserError(f"{path} {said}")
    return text if importer.streams else without_bom(text)


# What `storlab import` refuses: files that no importer reads, by how they begin; and, of cells that took turns, what
# contradicts that though each file by itself is sound.

_UNPACK = "unpack it first"
_UTF_16 = "is text in UTF-16, not UTF-8: convert it first (iconv -f {} -t UTF-8)"
_LOOKED_AT = 64  # bytes by which UTF-16 is known that doesn't say so
_BEGINNINGS = {
    b"\x1f\x8b": f"is packed by gzip: {_UNPACK} (gunzip)",
    b"\x28\xb5\x2f\xfd": f"is packed by Zstandard: {_UNPACK} (unzstd)",
    b"\xfd7zXZ\x00": f"is packed by xz: {_UNPACK} (unxz)",
    b"BZh": f"is packed by bzip2: {_UNPACK} (bunzip2)",
    b"PK\x03\x04": f"is a ZIP archive, or a workbook of Excel or Calc: {_UNPACK} (unzip), or save it as CSV",
    b"\xff\xfe": _UTF_16.format("UTF-16"),
    b"\xfe\xff": _UTF_16.format("UTF-16"),
    b"\x7fELF": "is a program, not the output of one",
    b"%PDF-": "is a PDF: the text or table that it was made of is needed",
    b"PAR1": "is a table in Parquet: save it as CSV first",
    b"SQLite format 3\x00": "is a database of SQLite: save the table as CSV first",
}


def foreign(text: bytes) -> str | None:
    """What the contents of a file are instead of text, and what to do: the end of a sentence about it."""
    if not text:
        return "is empty"
    halves = {"UTF-16LE": text[1:_LOOKED_AT:2], "UTF-16BE": text[:_LOOKED_AT:2]}
    zeros = [name for name, half in halves.items() if half and not any(half)]
    if len(zeros) == 1 and len(text) > 8:  # both halves: nothing but zeros
        return _UTF_16.format(zeros[0])
    return next((said for beginning, said in _BEGINNINGS.items() if text.startswith(beginning)), None)


def refuse_other_dates(imported: Imported, files: Sequence[Path]) -> None:
    """Raise ``UserError`` where files name no times, and were written in another order than they are given in.

    Dates that lie less than a second apart are those of copies: no run of a benchmark is so short.
    """
    if imported.turns != "given" or not all(path.is_file() for path in files):
        return
    dates = [path.stat().st_mtime for path in files]
    ordered = sorted(dates)
    if any(later - earlier < 1 for earlier, later in pairwise(ordered)):
        return
    for (earlier, one), (later, other) in pairwise(zip(dates, files, strict=True)):
        if later < earlier:
            raise UserError(
                f"--interleaved: {other} is given after {one} and was written before it, by their dates: give them in "
                "the order in which they were measured. If these are dates of copies: `cp -p` keeps those of files"
            )


def refuse_fixed_order(imported: Imported) -> None:
    """Raise ``UserError`` where no comparison could have a verdict, as the same side mostly ran first."""
    order = imported.order(range(1, len(imported.trials) + 1))
    compared = list(_compared(imported))
    if not compared:
        others = ", ".join(name for name, levels in imported.factors.items() if len(levels) > 1)
        raise UserError(
            f"--interleaved: no two set-ups differ in {imported.compared} alone, so there is nothing to compare; they "
            f"differ in {others}: give one --factor that says which is which"
        )
    from storlab.analysis.stats.pairing import same_order  # loads what only such imports need

    why = [found for cells, names in compared if (found := same_order(order, cells, names)) is not None]
    if len(why) == len(compared):
        from storlab.report.language.say import say

        raise UserError(f"--interleaved: {say(why[0])}. {INSTEAD}")


def _compared(imported: Imported) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    named = imported.compared
    others = ((tuple(at for name, at in of.items() if name != named), (cell, of[named])) for cell, of in imported.cells)
    for group in grouped(others).values():
        for (a, level_a), (b, level_b) in combinations(group, 2):
            yield (a, b), (level_a, level_b)
