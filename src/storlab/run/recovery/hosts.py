"""Which machines undoing logs in to: those that this command line permits, or of runs that were begun here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storlab.errors import Problem
from storlab.reach import Found, Key
from storlab.registry import node_kinds
from storlab.run.gate import each_once, refuse, unpermitted, want_of
from storlab.run.permissions import Permissions
from storlab.run.recovery.journal import JOURNAL, Pending
from storlab.run.recovery.temporary import remembered_runs


def refuse_unpermitted_hosts(run: str, folder: Path, pending: Sequence[Pending], permissions: Permissions) -> None:
    """Raise ``StudyError`` where a journal has machines that nobody permitted. Of a run that this user began, and of
    which not all was torn down yet, they were permitted then.
    """
    known = remembered_runs().get(run)
    if known is not None and known.resolve() == folder.resolve():
        return
    kinds = node_kinds()
    far = [each.node for each in pending if (kind := kinds.get(each.node.kind)) and "hosts" in kind.model_fields]
    # What follows the host is how the agent becomes root there.
    wants = each_once(
        want_of(Found((node.name,), "host", node.address.partition(" ")[0]), (), "", None) for node in far
    )
    refuse(str(folder / JOURNAL), unpermitted(wants, permissions), _problem)


def _problem(key: Key, message: str) -> Problem:
    return Problem(".".join(map(str, key)), message)
