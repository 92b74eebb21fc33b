"""Where the program starts: nothing is loaded yet, so that Ctrl-C in its first tenth of a second is no traceback."""

import os
import sys


def main() -> None:
    """Run a command; see ``storlab.cli.main``."""
    try:
        _open_what_is_closed()
        from storlab.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # failure.INTERRUPTED, which is not loaded


def _open_what_is_closed() -> None:
    """Standard streams that the caller has closed lead nowhere, and no file that is opened later gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
