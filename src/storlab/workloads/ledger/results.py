"""What the ledger's program left: ``commits.json``. A guest's root may have written it, so it is bounded."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl
from msgspec import Meta, Struct

from storlab.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS, Measurements, metric_frame
from storlab.metrics import PERCENTILES, by_name, percentile_name
from storlab.percentiles import percentiles
from storlab.workloads.base import bytes_of, elapsed_values, read_exit, unfinished
from storlab.workloads.ledger.declared import COMMITS

NAME = "commits.json"
_MOST = 64 * 1024**2  # bytes
_NS = 1e-9
_LATENCY = "commit.latency"


class Commits(Struct, frozen=True, forbid_unknown_fields=True):
    """How long all of them took, and each, in s."""

    elapsed: Annotated[float, Meta(gt=0, le=1e9)]
    latencies: Annotated[list[Annotated[float, Meta(ge=0, le=1e9)]], Meta(min_length=1)]


def read_results(raw: Path) -> Measurements:
    """All that one trial left. Raises ``TimedOut``, ``CommandFailed``, ``ParseError``."""
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if not ended.ok:
        raise unfinished("the ledger", ended, said)
    commits = read_commits(bytes_of(raw / NAME), str(raw / NAME))
    histogram = _histogram(commits.latencies)
    count = len(commits.latencies)
    numbers = {
        "commit.count": count,
        "commit.rate": count / commits.elapsed,
        f"{_LATENCY}.mean": sum(commits.latencies) / count,
        f"{_LATENCY}.min": min(commits.latencies),
        f"{_LATENCY}.max": max(commits.latencies),
    }
    found = percentiles(histogram, PERCENTILES)
    numbers |= {f"{_LATENCY}.{percentile_name(each)}": value for each, value in found.items()}
    specs = by_name(COMMITS)
    values = [specs[name].value(number) for name, number in numbers.items()]
    return Measurements(metric_frame([*values, *elapsed_values(ended)]), histograms=histogram)


def read_commits(data: bytes, source: str = "") -> Commits:
    if len(data) > _MOST:
        raise ParseError(f"{len(data)} bytes, and at most {_MOST} are read", source)
    try:
        return msgspec.json.decode(data, type=Commits)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ParseError(re.sub(r"\s+", " ", str(error)), source) from None


def _histogram(latencies: list[float]) -> pl.DataFrame:
    """Bins one nanosecond wide, which lose nothing."""
    counts = sorted(Counter(round(each / _NS) for each in latencies).items())
    rows = [(None, _LATENCY, ns * _NS, (ns + 1) * _NS, count) for ns, count in counts]
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")
