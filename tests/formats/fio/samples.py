"""fio's outputs in ``golden/``, all written by fio 3.33, the installed fio, and short ways to look at what was read."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from hypothesis import HealthCheck, settings

from storlab.measurements import Measurements
from storlab.metrics import PERCENTILES
from storlab.percentiles import Ints, ranked
from storlab.tools.fio import histogram
from storlab.tools.fio.log_lines import Lines, map_chunks

ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def values(measured: Measurements, job: str | None = None) -> dict[str, float]:
    """The metrics of one job, or (None) of all together."""
    mine = measured.metrics.filter(pl.col("job").eq_missing(job))
    assert mine["metric"].is_unique().all()
    return dict(zip(mine["metric"], mine["value"], strict=True))


def counts(measured: Measurements, metric: str, job: str | None = None) -> dict[float, int]:
    """A histogram as counts by lower edge."""
    mine = measured.histograms.filter(pl.col("job").eq_missing(job), pl.col("metric") == metric)
    return dict(zip(mine["lower"], mine["count"], strict=True))


def series(frame: pl.DataFrame, metric: str, job: str | None = None) -> dict[float, float]:
    """A series as values by time."""
    mine = frame.filter(pl.col("metric") == metric, pl.col("job").eq_missing(job))
    return {round(t, 6): value for t, value in zip(mine["t"], mine["value"], strict=True)}


def histogram_frame(counts: Ints) -> pl.DataFrame:
    """Counts of all of fio's bins as a histogram of those that are used."""
    used = np.flatnonzero(counts)
    return pl.DataFrame({"lower": histogram.LOWER[used], "upper": histogram.UPPER[used], "count": counts[used]})


def fio_percentiles(counts: Ints, percentiles: Sequence[float] = PERCENTILES) -> Ints:
    """What fio prints, in ns, of counts of all bins."""
    _, at = ranked(np.zeros(counts.size, dtype=np.int64), counts, percentiles)
    found: Ints = histogram.VALUE_NS[at[0]]
    return found


def lines_frame(lines: Lines) -> pl.DataFrame:
    """The columns of lines of a log as a frame."""
    return pl.DataFrame({name: getattr(lines, name) for name in ("time", "value", "direction", "size")})


def read_lines(path: Path) -> pl.DataFrame:
    """A whole log as one frame; of one without lines, its columns."""
    none = np.zeros(0, dtype=np.int64)
    return pl.concat([lines_frame(Lines(none, none, none, none)), *map_chunks(path, lines_frame)])


def run_fio(*options: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["fio", *options], cwd=cwd, capture_output=True, timeout=60)
