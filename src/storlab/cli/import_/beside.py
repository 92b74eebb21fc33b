"""Files that are read along with another one that is named too, such as the log of a run's other thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storlab.cli.import_.options import ImportOptions
from storlab.errors import UserError
from storlab.grouping import grouped
from storlab.limits import IMPORTED
from storlab.reading import read_file
from storlab.text import printable
from storlab.tools.importer import Importer
from storlab.tools.registry import importer_of


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
        for name in importer.beside_named(path.name, _text(path), others):
            found.setdefault(path.with_name(name), path)
    return found


def _one_for_each(options: ImportOptions) -> bool:
    levels = [factor.partition("=")[2].split(",") for factor in options.factors or []]
    return any(len(each) == len(options.paths) for each in (options.labels or [], *levels))


def _text(path: Path) -> bytes:
    try:
        return read_file(path, IMPORTED)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
