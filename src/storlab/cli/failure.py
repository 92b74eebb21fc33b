"""What a user sees when something goes wrong: one message on standard error, and an exit status. Never a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from storlab.errors import StorlabError, StudyError, UserError

OWN_FAULT = 1
USERS_MISTAKE = 2
TRIALS_FAILED = 3
GATE_HIT = 4
INTERRUPTED = 130


def explain(error: Exception) -> int:
    """Print what went wrong; returns the exit status."""
    match error:
        case BrokenPipeError():
            # Whoever read our output has seen enough. Python would complain once more while flushing at exit.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case StudyError():
            _say(str(error))
            return USERS_MISTAKE
        case UserError():
            _say(f"storlab: {error}")
            return USERS_MISTAKE
        case StorlabError():
            _say(f"storlab: {error}")
            return OWN_FAULT
        case OSError(errno=errno.ENOSPC):
            where = f" ({error.filename})" if error.filename else ""
            _say(
                f"storlab: no space left on the file system of the run's folder{where}. What was recorded is kept: "
                "free some space, then `storlab resume` the run"
            )
            return OWN_FAULT
        case OSError():
            _say(f"storlab: {error.filename or 'a file'}: {error.strerror}")
            return OWN_FAULT
        case _:
            _say(f"storlab: internal error, {type(error).__name__}: {error}\nPlease report it with {_details(error)}")
            return OWN_FAULT


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr)


def _details(error: Exception) -> str:
    """A file with the traceback; its name, or the error's place where no file can be written."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="storlab-fault-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
        return file.name
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"its place: {last.filename}:{last.lineno}"
