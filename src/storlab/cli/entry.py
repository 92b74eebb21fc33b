"""Where the program starts: nothing is loaded yet, so that Ctrl-C in its first tenth of a second is no traceback."""

import sys


def main() -> None:
    """Run a command; see ``storlab.cli.main``."""
    try:
        from storlab.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # failure.INTERRUPTED, which is not loaded
