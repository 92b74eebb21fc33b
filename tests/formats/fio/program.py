"""The installed fio, run to its end."""

from __future__ import annotations

import subprocess
from pathlib import Path

PACK = ("--log_compression=64k", "--log_store_compressed=1", "--thread")  # one process: nothing of it outlives a kill
_TRIES = 5


def run_fio(*options: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """What fio printed. One that packs logs and never ends is tried again: it waits for its own packing threads.

    With fio 3.33 on a busy machine 2 of 270 did, and of 600 that did not pack, none. Each try writes its files anew.
    """
    tries = _TRIES if set(PACK) & set(options) else 1
    for _ in range(tries - 1):
        try:
            return _run(options, cwd, timeout=20)
        except subprocess.TimeoutExpired:
            continue
    return _run(options, cwd, timeout=60)


def _run(options: tuple[str, ...], cwd: Path, timeout: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["fio", *options], cwd=cwd, capture_output=True, timeout=timeout)
