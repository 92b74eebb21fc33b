"""What is said of a run that has ended, here or on another machine, and its exit status."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from storlab.cli.output import show_json, until_closed, warn
from storlab.cli.status import (
    GATE_HIT,
    GATE_MISSING,
    INTERRUPTED,
    LEFT_BEHIND,
    NODE_UNREACHABLE,
    NOTHING_MEASURED,
    TRIALS_FAILED,
    Status,
    of_gates,
)
from storlab.cli.streams import NAMES

if TYPE_CHECKING:
    from storlab.run.executor import Outcome

_MOST_ADDED = 30  # rounds that are suggested: more are better asked for after another look


def finish(outcome: Outcome, json: bool, allow_undecided: bool = False) -> Status:
    """Report on a run that ended, here or where it is drawn; returns the exit status."""
    from storlab.cli.run_events import RunEnded, drawn_elsewhere, write_event

    try:
        if drawn_elsewhere():
            write_event(RunEnded(outcome.ending, outcome.left_behind))
        else:
            with until_closed():
                _show(outcome, json)
            with contextlib.suppress(OSError):
                _say_how_it_ended(outcome, allow_undecided)
    except KeyboardInterrupt:
        folder = outcome.folder.path
        warn(f"storlab: interrupted; all is recorded, and `storlab report {folder}` shows it")
        return INTERRUPTED
    except OSError as error:
        if error.filename == NAMES[1]:
            warn(f"storlab: all is recorded, and `storlab report {outcome.folder.path}` shows it")
        raise
    if outcome.ending == "interrupted":
        return INTERRUPTED
    if outcome.ending == "unreachable":
        return NODE_UNREACHABLE
    if outcome.left_behind:
        return LEFT_BEHIND
    comparisons = outcome.summary.comparisons
    status = of_gates((result for c in comparisons for result in c.gates), allow_undecided=allow_undecided)
    if status is GATE_HIT:
        return status
    if outcome.ending == "failures":
        return TRIALS_FAILED
    unanswered = outcome.folder.manifest.gates and not any(c.gates or c.optional for c in comparisons)
    if unanswered or status is GATE_MISSING:
        return GATE_MISSING
    return NOTHING_MEASURED if outcome.ending == "nothing measured" else status


def _show(outcome: Outcome, json: bool) -> None:
    from storlab.cli.reporting import report_input, show_and_write, write_html

    given = report_input(outcome.folder, outcome.tables, outcome.summary)
    if json:
        import orjson

        from storlab.analysis.summary import to_json

        write_html(outcome.folder, given)
        summary = orjson.loads(to_json(outcome.summary))
        answer = {"run": str(outcome.folder.path), "ending": outcome.ending, "summary": summary}
        show_json(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
    else:
        console = show_and_write(outcome.folder, given)
        if (more := _more_rounds(outcome)) is not None:
            added = f"`storlab resume {outcome.folder.path} --rounds +{more}`"
            console.print(f"More rounds may decide what is open: {added}", soft_wrap=True, markup=False)


def _say_how_it_ended(outcome: Outcome, allow_undecided: bool) -> None:
    from storlab.report.language.words import missing
    from storlab.report.model.gates import gates_together

    if outcome.folder.manifest.gates:
        failed = sum(cell.failed for cell in outcome.summary.cells)
        gates = [c.gates for c in outcome.summary.comparisons if c.gates or c.optional]
        lacks = any(cell.status == "unsupported" for cell in outcome.summary.cells)
        warn(gates_together(gates, allow_undecided=allow_undecided, failed=failed, unsupported=lacks))
    if outcome.ending == "nothing measured":
        warn("storlab: nothing that was asked for was measured; the report says why")
    elif outcome.ending != "interrupted" and (said := missing(outcome.summary)):
        warn(f"storlab: {said}; the report says why")
    if outcome.summary.unsteady:
        warn(f"storlab: nothing is judged: {outcome.summary.unsteady}")
    for what in outcome.left_behind:
        warn(f"storlab: could not be torn down: {what}")
    if outcome.left_behind:
        warn(f"storlab: `storlab clean {outcome.folder.path}` tries again")
    if outcome.ending == "interrupted":
        warn(f"storlab: interrupted; `storlab resume {outcome.folder.path}` resumes it")
    if outcome.ending == "unreachable":
        warn(f"storlab: {outcome.folder.manifest.stopped}")


def _more_rounds(outcome: Outcome) -> int | None:
    """How many to add where a run ended with open comparisons: as many as are expected to be needed, where known."""
    unsettled = (c for c in outcome.summary.comparisons if c.verdict == "undecided" and not c.settled)
    left = [c for c in unsettled if c.rests_after is None]
    if outcome.ending != "complete" or not left or outcome.folder.manifest.assigned is not None:
        return None
    known = [c.rounds_to_decide for c in left if c.rounds_to_decide is not None]
    return min(max(known, default=10), _MOST_ADDED)
