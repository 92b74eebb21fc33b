"""Storlab: a laboratory for storage performance.

The Python interface is small: ``storlab.open_run(path)`` gives the tables of any run as Polars frames.
"""

from __future__ import annotations

from storlab.version import __version__

TYPE_CHECKING = False  # as type checkers know it; to load typing takes longer than all else before the program starts
if TYPE_CHECKING:
    from pathlib import Path

    from storlab.records.run_folder import RunFolder

__all__ = ["__version__", "open_run"]


def open_run(path: str | Path) -> RunFolder:
    """Open a run's folder. ``.trials``, ``.metrics``, ``.series``, ``.histograms``, ``.requests`` and
    ``.findings``: Polars frames.

    Raises ``RecordsError`` where the path is not a run.
    """
    from storlab.records.run_folder import RunFolder  # polars is slow to import: only when it is needed

    return RunFolder.open(path)
