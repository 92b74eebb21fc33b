"""Making something in the cache, one at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_POLL = 0.1  # s


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Only one process, and only one task in it, makes ``path`` at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)
