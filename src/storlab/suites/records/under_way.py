"""Which script is under way on this machine, so that one that takes the machine down with it has a result all the same.

In guests the controller outlives what is lost, and writes that itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from storlab.record import read_record, to_json
from storlab.records.files import write_durably
from storlab.suites.model import Attempt

UNDER_WAY = "under-way.json"


class _UnderWay(Struct, frozen=True, forbid_unknown_fields=True):
    """``boot``: of the machine; ``lost``: the script's result, should the machine go down before there is another."""

    boot: str
    lost: Attempt


def write_under_way(folder: Path, boot: str, lost: Attempt) -> None:
    """A script is about to begin: durably, in place of the one before."""
    write_durably(folder / UNDER_WAY, to_json(_UnderWay(boot, lost)))


def taken_down(folder: Path, boot: str, known: Iterable[Attempt]) -> Attempt | None:
    """The result of a script that ran when the machine was booted again, by its ``boot`` now.

    ``known``: the results that there are. Raises ``RecordsError`` where the file is damaged.
    """
    try:
        found = read_record(folder / UNDER_WAY, _UnderWay)
    except FileNotFoundError:
        return None
    lost = found.lost
    done = any(
        (each.key, each.role, each.number) == (lost.key, lost.role, lost.number) and each.started >= lost.started
        for each in known
    )
    return None if done or found.boot == boot else lost
