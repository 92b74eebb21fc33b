"""A word on standard error while something takes long that is over at once for most studies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storlab.cli.output import warn

_FIRST, _EACH = 2.0, 5.0
"""Seconds of this process's own work after which a line comes: what waits for other programs says so itself."""
_LOOK = 0.5  # s


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Say what is being done, and for how long already: nothing where it is done soon."""
    done = threading.Event()

    def tell() -> None:
        began, due = time.monotonic(), time.process_time() + _FIRST
        while not done.wait(_LOOK):
            if time.process_time() >= due:
                due += _EACH
                with suppress(OSError):  # nobody listens any more
                    warn(f"{doing}: {time.monotonic() - began:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    with suppress(RuntimeError):  # no room for a thread: that is no reason to stop
        teller.start()
    try:
        yield
    finally:
        done.set()
        if teller.ident is not None:
            teller.join()
