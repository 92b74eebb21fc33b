"""Folders for raw records. They are made within a run's folder, and that is never made again once it was removed."""

from __future__ import annotations

from pathlib import Path


def make_raw_folder(folder: Path, levels: int = 2) -> None:
    """Make a folder, and at most so many levels of its path. Raises ``FileNotFoundError`` where the rest is gone."""
    for each in (*reversed(folder.parents[: levels - 1]), folder):
        each.mkdir(exist_ok=True)
