"""Files that are read along with another one that is named too, such as the log of a run's other thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storlab.cli.import_.options import ImportOptions
from storlab.errors import UserError
from storlab.importing.importer import Importer
from storlab.importing.registry import importer_of
from storlab.limits import IMPORTED
from storlab.reading import read_file
from storlab.text import printable


def without_beside(options: ImportOptions) -> ImportOptions:
    """The same without the paths that are read along with another of them.

    Raises ``UserError`` where each path was given a label or a level: such a file can't have one of its own.
    """
    owners = _owners(importer_of(options.kind), options.paths)
    if owners and _one_for_each(options):
        path, owner = next(iter(owners.items()))
        raise UserError(
            printable(f"{path} is read along with {owner}, as part of the same run: leave out its name, and its level")
        )
    return replace(options, paths=[path for path in options.paths if path not in owners])


def _owners(importer: Importer, paths: Sequence[Path]) -> Mapping[Path, Path]:
    """Of each path that is read along with another one, that one."""
    owners: dict[Path, Path] = {}
    for path in paths:
        others = [each.name for each in paths if each.parent == path.parent and each != path]
        if not others or path in owners or importer.streams or not path.is_file():
            continue
        for name in importer.beside_named(path.name, _text(path), others):
            owners.setdefault(path.with_name(name), path)
    return owners


def _one_for_each(options: ImportOptions) -> bool:
    levels = [factor.partition("=")[2].split(",") for factor in options.factors or []]
    return any(len(each) == len(options.paths) for each in (options.labels or [], *levels))


def _text(path: Path) -> bytes:
    try:
        return read_file(path, IMPORTED)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
