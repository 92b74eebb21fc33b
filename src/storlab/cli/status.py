"""Exit statuses, each with its reason: commands end with these, and the command line's reference lists them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
    *(GATE_HIT, GATE_MISSING, GATE_UNDECIDED, TEST_WITHOUT_RESULT, TEST_MISSING, CUT_BROKE),
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
