"""Where a run was run that this machine has the records of: a file in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from storlab.base.record import RunId, read_record, to_json
from storlab.records.files import write_whole

NAME = "on.json"


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``host``: as its user calls the machine. ``job``: which of its jobs; ``name``: of the run's folder in there."""

    host: str
    job: RunId
    name: str


def read_origin(folder: Path) -> Origin | None:
    """``None`` for a run of this machine. Raises ``RecordsError`` where the file is damaged."""
    try:
        return read_record(folder / NAME, Origin)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_origin(folder: Path, origin: Origin) -> None:
    """Raises ``OSError``."""
    write_whole(folder / NAME, to_json(origin))
