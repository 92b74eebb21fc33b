"""Runs that did not end properly, and what of them may still stand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from storlab.doctor.check import Check, missing, ok, warn
from storlab.errors import RecordsError
from storlab.run.journal import read_pending
from storlab.run.registry_of_runs import remembered_runs

GROUP = "Runs"


def checks() -> list[Check]:
    """One line a remembered run, or one that says that there is none."""
    return leftovers(remembered_runs())


def leftovers(runs: Mapping[str, Path]) -> list[Check]:
    """``runs``: run → folder."""
    if not runs:
        return [ok("leftovers", GROUP, "no run has left anything")]
    return [_judge(name, folder) for name, folder in runs.items()]


def _judge(name: str, folder: Path) -> Check:
    if not folder.is_dir():
        return warn(name, GROUP, f"{folder} is gone, and its journal with it", "storlab clean")
    command = f"storlab clean {shlex.quote(str(folder))}"
    try:
        pending = read_pending(folder / "journal.jsonl")
    except (OSError, RecordsError) as error:
        return missing(name, GROUP, str(error), command)
    if not pending:
        return warn(name, GROUP, f"{folder}: nothing stands, but the run did not end", command)
    kinds = ", ".join(dict.fromkeys(entry.undo for entry in pending))
    says = f"{folder}: still running, or it left {len(pending)} things standing ({kinds})"
    return warn(name, GROUP, says, command)
