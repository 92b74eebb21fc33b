"""Where runs lie whose journal may name something that still stands, for ``storlab clean`` without a folder.

One symbolic link a run, in ``$XDG_STATE_HOME/storlab/runs``; it goes when the run has ended and all is down.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def state_folder() -> Path:
    """What should outlast a restart and is this user's own: ``$XDG_STATE_HOME/storlab``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "storlab"


def _folder() -> Path:
    return state_folder() / "runs"


def remember_run(run: str, folder: Path) -> None:
    """Remember where a run lies. Without a writable home, ``clean`` must be given the run's folder."""
    with contextlib.suppress(OSError):
        _folder().mkdir(parents=True, exist_ok=True)
        link = _folder() / run
        link.unlink(missing_ok=True)
        link.symlink_to(folder.resolve())


def forget_run(run: str) -> None:
    """It has ended, and nothing of it stands."""
    with contextlib.suppress(OSError):
        (_folder() / run).unlink(missing_ok=True)


def remembered_runs() -> dict[str, Path]:
    """Run → folder. A folder that was removed or moved is still listed: its journal is lost."""
    try:
        return {link.name: link.readlink() for link in sorted(_folder().iterdir()) if link.is_symlink()}
    except OSError:
        return {}
