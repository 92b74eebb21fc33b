"""Sends a command to another machine, and ends as it ends."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from storlab.cli.output import warn
from storlab.cli.remote.session import Seen, Watched, watch
from storlab.cli.remote.travel import RULES, Journey, journey
from storlab.cli.status import STILL_RUNNING
from storlab.remote.host import Here, Host, Request
from storlab.run.beginning import new_run_id
from storlab.run.noise import this_machine


def run_elsewhere(name: str, given: list[tuple[Any, Any]], host: str, *, tied: bool) -> int:
    """Run a command there; returns its exit status. Raises ``UserError``."""
    made = journey(name, given, host)
    values = {parameter.name: value for parameter, value in given}
    rule = RULES[name]
    here = Here(this_machine(), tuple(str(place.absolute()) for place in made.results.values()))
    request = Request(
        *(new_run_id(), name, tuple(made.words), tuple(made.results), here),
        environment=_environment(),
        tied=tied or rule.tied,
        work=made.work,
    )

    async def begin(there: Host) -> str:
        started = await there.start(request, made.files)
        if started.busy:
            warn(f"This run is still going on on {host}; it is shown from its beginning.")
        return started.job or started.busy

    run = _run_of(name, made)
    quiet = bool(values.get("quiet") or values.get("json"))
    watched = Watched(
        host=host,
        command=name,
        results=made.results,
        run=run,
        tied=tied or rule.tied,
        keep=run is not None and rule.measures,
        measures=rule.measures,
        quiet=quiet,
    )
    json, undecided = bool(values.get("json")), bool(values.get("allow_undecided"))
    return ended(watch(watched, begin), watched, json=json, allow_undecided=undecided)


def _run_of(name: str, made: Journey) -> str | None:
    rule = RULES[name]
    has_one = rule.out is not None or (rule.run and not rule.output)  # a report's result is a file
    return next(iter(made.results)) if made.results and has_one else None


def ended(seen: Seen, watched: Watched, *, json: bool, allow_undecided: bool) -> int:
    """The report on a run is made here, from its records; returns the exit status."""
    if seen.screen.ended is None or seen.status == STILL_RUNNING or watched.run is None:
        return seen.status
    from storlab.cli.run import finish
    from storlab.records.derive import tables_of
    from storlab.records.run_folder import RunFolder
    from storlab.run.executor import Outcome
    from storlab.run.planning.design import summary_of_run

    run = RunFolder.open(watched.results[watched.run])
    tables = tables_of(run)
    summary = summary_of_run(run.manifest, tables)
    outcome = Outcome(run, seen.screen.ended.ending, summary, tables, seen.screen.ended.left_behind)
    return finish(outcome, json, allow_undecided) or seen.status


def _environment() -> dict[str, str]:
    """Text there is what it would be here: as wide, and in UTF-8."""
    columns = os.environ.get("COLUMNS")
    if sys.stdout.isatty():
        columns = str(shutil.get_terminal_size().columns)
    return {"LC_ALL": "C.UTF-8", **({"COLUMNS": columns} if columns else {})}
