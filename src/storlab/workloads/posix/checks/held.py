"""A file that was written and synced and stays open. Whoever serves the directory looks at it meanwhile."""

from __future__ import annotations

import os
import signal

NAME = "synced"
LENGTH = 64 * 1024
CONTENTS = bytes(range(256)) * (LENGTH // 256)


def hold(folder: str) -> None:
    """Prints ``ready`` once it is synced, and keeps it open until it is ended."""
    os.makedirs(folder)
    file = os.open(os.path.join(folder, NAME), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(file, CONTENTS)
    os.fsync(file)
    print("ready", flush=True)
    signal.pause()
