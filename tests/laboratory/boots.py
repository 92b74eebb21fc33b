"""A program that boots machines, as a user has one: what it is asked goes to a function of the test's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def booting(folder: Path, obey: Callable[[str, str], None]) -> Iterator[str]:
    """A program that has ``obey`` boot a machine, given its name and the release, and ends at once."""
    pipe, program = folder / "pipe", folder / "boot"
    os.mkfifo(pipe)
    program.write_text(f'#!/bin/sh\nprintf "%s %s\\n" "$1" "$2" >{pipe}\n')
    program.chmod(0o755)

    def listen() -> None:
        with pipe.open() as asked:
            for line in asked:
                name, _, release = line.removesuffix("\n").partition(" ")
                if name == "end":
                    return
                obey(name, release)

    with os.fdopen(os.open(pipe, os.O_RDWR), "w") as held:  # so that it stays open
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield str(program)
        finally:
            held.write("end \n")
            held.flush()
            thread.join()


__all__ = ["booting"]
