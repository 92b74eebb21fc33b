"""The disks that ``storlab trace`` is to watch, as this machine has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storlab.blockio.disks import without_requests

_SYS = Path("/sys/class/block")


def notes_on(disks: Sequence[str], sys: Path = _SYS) -> list[str]:
    """Sentences on those that make no requests of their own. One that does not exist is left to the tracer to name."""
    return [sentence for disk in disks if (sentence := _said_of(disk, sys)) is not None]


def _said_of(disk: str, sys: Path) -> str | None:
    folder = sys / disk
    if "/" in disk or not folder.exists():
        return None
    whole = folder.resolve().parent if (folder / "partition").exists() else folder
    if (whole / "mq").exists():
        return None
    slaves = whole / "slaves"
    return without_requests(disk, sorted(path.name for path in slaves.iterdir()) if slaves.is_dir() else ())
