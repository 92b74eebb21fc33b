"""Runs that are not runs of their own: a copy repeats nothing, and taken for one it would count every round twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from storlab.errors import UserError
from storlab.records.imported import imported_of, raw_files
from storlab.records.run_folder import RunFolder


def refuse_copies(runs: Mapping[str, RunFolder], *, together: bool) -> None:
    """Raise ``UserError`` where two of ``runs``, by name, are one, as when a folder was copied.

    ``together``: trials of several runs are rounds of one cell. Then no file may have been imported twice for the same
    levels; apart, two files of counts may well be the same.
    """
    run_of: dict[str, str] = {}
    file_of: dict[tuple[str, str], str] = {}
    for name, run in runs.items():
        first = run_of.setdefault(run.manifest.run, name)
        if first != name:
            raise UserError(f"{first} and {name} are one run, {run.manifest.run}: a copy is no repeat; leave one out")
        imported = imported_of(run.manifest) if together else None
        for file, raw in raw_files(run, imported) if imported else ():
            with raw.open("rb") as content:
                known = file_of.setdefault((str(file.levels), hashlib.file_digest(content, "sha256").hexdigest()), name)
            if known != name:
                raise UserError(
                    f"{known} and {name} hold the same file, {file.name}: a copy is no repeat; leave one out"
                )
