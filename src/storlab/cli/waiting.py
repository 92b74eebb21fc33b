"""A word on standard error while something takes long that is over at once for most studies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from storlab.cli.output import warn

_AT = (2.0, 5.0, 10.0, 20.0, 30.0)
"""Seconds after which a line comes; then one comes each time that the last of them has passed."""


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Say what is being done, and for how long already: nothing where it is done soon."""
    done = threading.Event()

    def tell() -> None:
        began = time.monotonic()
        due = iter(_AT)
        at = 0.0
        while not done.wait(max(0.0, (at := next(due, at + _AT[-1])) - (time.monotonic() - began))):
            with suppress(OSError):  # nobody listens any more
                warn(f"{doing}: {at:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    with suppress(RuntimeError):  # no room for a thread: that is no reason to stop
        teller.start()
    try:
        yield
    finally:
        done.set()
        if teller.ident is not None:
            teller.join()
