"""Where a run's records go if nobody says."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path


def new_folder(study: str) -> Path:
    """``runs/NAME-TIME`` in the current folder."""
    name = f"{study}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path("runs") / name
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder
