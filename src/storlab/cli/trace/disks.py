"""The disks that ``storlab trace`` is to watch, as this machine has them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from storlab.blockio.disks import of_partition, without_requests

_SYS = Path("/sys/class/block")


def notes_on(disks: Sequence[str], sys: Path = _SYS) -> list[str]:
    """Sentences on partitions, and on disks that make no requests of their own.

    A disk that does not exist is left to the tracer to name.
    """
    return [sentence for disk in disks for sentence in _said_of(disk, sys)]


def kernel_name(disk: str) -> str:
    """A disk as ``/sys/class/block`` has it, where it was named by a path: ``/dev/disk/by-id/…``, ``/dev/mapper/…``.

    What is no block device is left to the tracer to refuse.
    """
    if disk.startswith("/"):
        with suppress(OSError, ValueError):
            status = Path(disk).stat()
            if stat.S_ISBLK(status.st_mode):
                number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
                return Path(f"/sys/dev/block/{number}").resolve(strict=True).name
    return disk.removeprefix("/dev/")


def _said_of(disk: str, sys: Path) -> Iterator[str]:
    folder = sys / disk
    if disk in ("", ".", "..") or "/" in disk or not folder.exists():
        return
    whole = folder.resolve()
    if (folder / "partition").exists():
        whole = whole.parent
        yield of_partition(disk, whole.name, int((folder / "start").read_text()))
    if not (whole / "mq").exists():
        slaves = whole / "slaves"
        yield without_requests(disk, sorted(path.name for path in slaves.iterdir()) if slaves.is_dir() else ())
