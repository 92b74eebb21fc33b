"""The disks that ``storlab trace`` is to watch, as this machine has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storlab.blockio.disks import without_requests
from storlab.errors import UserError

_SYS = Path("/sys/class/block")


def check_disks(disks: Sequence[str], sys: Path = _SYS) -> list[str]:
    """Sentences on those that have no requests of their own. Raises ``UserError`` where none of them has any.

    A disk that does not exist is left to the tracer, which says so.
    """
    said = [sentence for disk in disks if (sentence := _said_of(disk, sys)) is not None]
    if said and len(said) == len(disks):
        raise UserError("; ".join(said))
    return said


def _said_of(disk: str, sys: Path) -> str | None:
    folder = sys / disk
    if "/" in disk or not folder.exists():
        return None
    whole = folder.resolve().parent if (folder / "partition").exists() else folder
    if (whole / "mq").exists():
        return None
    slaves = whole / "slaves"
    return without_requests(disk, sorted(path.name for path in slaves.iterdir()) if slaves.is_dir() else ())
