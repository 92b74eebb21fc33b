"""Exit statuses, each with its reason, which the command line's reference lists; and what users see of an error.

That is one message on standard error, never a traceback.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from storlab.base.errors import StorlabError, StudyError, UserError
from storlab.cli.output import NAMES, discard, warn

if TYPE_CHECKING:
    from storlab.analysis.summary import GateResult


class Status(int):
    """A number with the one reason that it stands for. ``commands``: those that end with it, none for any command."""

    commands: tuple[str, ...]
    when: str

    def __new__(cls, number: int, when: str, *commands: str) -> Status:
        made = super().__new__(cls, number)
        made.commands, made.when = commands, when
        return made


_RUNS, _GATES, _SUITES = ("run", "resume"), ("run", "resume", "compare"), ("suite run", "suite resume")

COMPLETE = Status(0, "complete; a study that ends undecided is complete")
OWN_FAULT = Status(1, "an internal error, a full disk, or something else that the system refused")
LEFT_BEHIND = Status(1, "something could not be torn down", *_RUNS, "clean", *_SUITES)
USERS_MISTAKE = Status(2, "usage error, or this machine supports nothing of the study; nothing was run")
NODE_UNREACHABLE = Status(
    3, "a node stayed unreachable, so the run stopped: `storlab resume` continues it once it is back", *_RUNS
)
TRIALS_FAILED = Status(3, "some trials failed; the others were measured", *_RUNS)
NOTHING_MEASURED = Status(
    3, "nothing that was asked for was measured; if only some of it was not, the last line says so", *_GATES
)
TEST_UNEXPECTED = Status(3, "a result was unexpected", *_SUITES)
TEST_REGRESSED = Status(3, "a test regressed", "suite compare")
NOT_CHECKED = Status(3, "a set-up could not be checked, or a control failed", "crash")
ROUNDS_MISSING = Status(3, "rounds of the run are missing; the others were merged", "merge")
HOST_NOT_USABLE = Status(3, "a host can't be reached, is reserved, or its disk is refused", "lab check")
GATE_HIT = Status(4, "a gate of `--fail-on` was hit", *_GATES)
GATE_MISSING = Status(4, "what a gate asks about is missing, whatever `--allow-undecided` says", *_GATES)
GATE_UNDECIDED = Status(4, "a gate is undecided, and `--allow-undecided` was not given", *_GATES)
CLAIM_OPEN = Status(4, "a claim does not hold, is undecided, or missing", "check")
TEST_WITHOUT_RESULT = Status(4, "a test that was asked for has no result", *_SUITES)
TEST_MISSING = Status(
    4, "none regressed, but a test is missing, a log is cut off, or nothing was compared", "suite compare"
)
CUT_BROKE = Status(4, "a cut broke something", "crash")
STILL_RUNNING = Status(
    5,
    "it continues on another machine: the link was lost, or it was left there; `storlab attach` shows it",
    *("run", "resume", "noise", "crash", "suite run", "suite resume", "suite check", "attach"),
)
NOTHING_EXECUTED = Status(125, "no test was executed: to `git bisect`, a commit that can't be tested", *_SUITES)
INTERRUPTED = Status(130, "interrupted; everything is torn down, and `storlab resume` continues a run")

STATUSES = (
    *(COMPLETE, OWN_FAULT, LEFT_BEHIND, USERS_MISTAKE),
    *(NODE_UNREACHABLE, TRIALS_FAILED, NOTHING_MEASURED, ROUNDS_MISSING, TEST_UNEXPECTED, TEST_REGRESSED, NOT_CHECKED),
    HOST_NOT_USABLE,
    *(GATE_HIT, GATE_MISSING, GATE_UNDECIDED, CLAIM_OPEN, TEST_WITHOUT_RESULT, TEST_MISSING, CUT_BROKE),
    *(STILL_RUNNING, NOTHING_EXECUTED, INTERRUPTED),
)
"""In the order of the table. Of several that apply to a run, the first that ``run`` asks about counts."""


def of_gates(results: Iterable[GateResult], *, allow_undecided: bool) -> Status:
    outcomes = {result.outcome for result in results}
    if "hit" in outcomes:
        return GATE_HIT
    if "missing" in outcomes:
        return GATE_MISSING
    return GATE_UNDECIDED if "undecided" in outcomes and not allow_undecided else COMPLETE


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
