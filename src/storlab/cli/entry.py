"""Where the program starts: nothing is loaded yet, so that Ctrl-C in its first tenth of a second is no traceback."""

import os
import sys
import warnings


def main() -> None:
    """Run a command; see ``storlab.cli.main``."""
    try:
        _open_what_is_closed()
        warnings.filterwarnings("ignore", "Polars binary is missing")  # for lack of memory, which is then reported
        from storlab.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # failure.INTERRUPTED, which is not loaded
    except (MemoryError, ImportError, OSError, RuntimeError) as error:  # of loading the program itself
        os.write(
            2, f"storlab: cannot be loaded, perhaps for lack of memory: {type(error).__name__}: {error}\n".encode()
        )
        os._exit(1)  # an orderly end may want memory as well


def _open_what_is_closed() -> None:
    """Standard streams that the caller has closed lead nowhere, and no file that is opened later gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
