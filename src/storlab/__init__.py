"""Storlab: a laboratory for storage performance.

The Python interface is small: ``storlab.open_run(path)`` gives the tables of any run as Polars frames.
"""

from __future__ import annotations

from storlab.version import __version__

TYPE_CHECKING = False  # as type checkers know it; to load typing takes longer than all else before the program starts
if TYPE_CHECKING:
    from pathlib import Path

    from storlab.report.plots import Run

__all__ = ["__version__", "open_run"]


def open_run(path: str | Path) -> Run:
    """Open a run's folder. ``.trials``, ``.metrics``, ``.series``, ``.histograms``, ``.requests`` and
    ``.findings``: Polars frames. ``.plot``: charts, such as ``run.plot.curve("iops", "iodepth")``.

    Raises ``RecordsError`` where the path is not a run.
    """
    import pathlib

    from storlab.records.manifest import read_manifest  # polars is slow to import: only when it is needed
    from storlab.report.plots import Run

    run = Run(pathlib.Path(path))
    read_manifest(run.path)
    return run
