"""What `storlab import` refuses: files that no importer reads, by how they begin; and, of cells that took turns, what
contradicts that though each file by itself is sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path

from storlab.analysis.stats.pairing import same_order
from storlab.errors import UserError
from storlab.grouping import grouped
from storlab.tools.cells import INSTEAD
from storlab.tools.imported import Imported

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
    why = [same_order(order, cells, names) for cells, names in compared]
    if all(why):
        raise UserError(f"--interleaved: {why[0]}. {INSTEAD}")


def _compared(imported: Imported) -> Iterator[tuple[tuple[int, int], tuple[str, str]]]:
    """Every two cells that differ in the compared factor only, and their levels of it: what a report compares."""
    named = imported.compared
    others = ((tuple(at for name, at in of.items() if name != named), (cell, of[named])) for cell, of in imported.cells)
    for group in grouped(others).values():
        for (a, level_a), (b, level_b) in combinations(group, 2):
            yield (a, b), (level_a, level_b)
