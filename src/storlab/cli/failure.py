"""What a user sees when something goes wrong: one message on standard error, and an exit status. Never a traceback."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable

from storlab.cli.output import warn
from storlab.cli.status import COMPLETE, OWN_FAULT, USERS_MISTAKE, Status
from storlab.cli.streams import NAMES, discard
from storlab.errors import StorlabError, StudyError, UserError


def explaining(command: Callable[[], object]) -> None:
    try:
        try:
            command()
        except SystemExit:
            try:
                sys.stdout.flush()
            except BrokenPipeError:  # the status says more than that somebody has seen enough
                discard(1)
            raise
        sys.stdout.flush()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        sys.exit(explain(error))


def explain(error: BaseException) -> Status:
    """Print what went wrong; returns the exit status."""
    match error:
        case BrokenPipeError():
            discard(1)  # whoever read our output has seen enough
            return COMPLETE
        case StudyError():
            _say(str(error))
            return USERS_MISTAKE
        case UserError():
            _say(f"storlab: {error}")
            return USERS_MISTAKE
        case StorlabError():
            _say(f"storlab: {error}")
            return OWN_FAULT
        case _ if _lacks_memory(error):
            _say(f"storlab: not enough memory, or too few processes allowed{_limits()}: nothing more could be done")
            return OWN_FAULT
        case OSError() if error.filename == NAMES[1]:
            discard(1)
            why = "it is closed" if error.errno == errno.EBADF else error.strerror
            _say(f"storlab: cannot write to standard output: {why}; what was to be shown there is lost")
            return OWN_FAULT
        case OSError(errno=errno.ENOSPC):
            where = f" ({error.filename})" if error.filename else ""
            _say(
                f"storlab: no space left on the file system of the run's folder{where}. What was recorded is kept: "
                "free some space, then `storlab resume` the run, or `storlab suite resume` that of a suite"
            )
            return OWN_FAULT
        case OSError():
            what = f"{error.filename}: " if error.filename else "the system refused something: "
            _say(f"storlab: {what}{error.strerror} ({errno.errorcode.get(error.errno or 0, 'no number')})")
            return OWN_FAULT
        case _:
            _say(f"storlab: internal error, {type(error).__name__}: {error}\nPlease report it with {_details(error)}")
            return OWN_FAULT


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it comes of too little memory, or of threads that could not be started.

    Where a library was loaded in part, for the rest found no room, any of its names may be missing later.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or type(error).__name__ == "PanicException":
            return True
        if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN):
            return True
        if "can't start new thread" in str(error) or "failed to map segment" in str(error):
            return True
        if isinstance(error, ImportError | NameError | AttributeError | SystemError) and _limits():
            return True
        error = error.__cause__ or error.__context__
    return False


def _limits() -> str:
    """Those that this process was given, in words; empty where there are none."""
    import resource

    memory = min(resource.getrlimit(which)[0] % 2**63 for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    unlimited = resource.RLIM_INFINITY % 2**63
    return "" if memory == unlimited else f" (`ulimit -v` allows {memory // 1024**2} MiB)"


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        warn(message)


def _details(error: BaseException) -> str:
    """A file with the traceback; its name, or the error's place where no file can be written."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="storlab-fault-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
        return file.name
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"its place: {last.filename}:{last.lineno}"
