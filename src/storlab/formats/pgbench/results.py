"""pgbench's summary, and its log with a line for each transaction.

Source: https://www.postgresql.org/docs/15/pgbench.html, and what pgbench 15 prints:

    client_id transaction_no time script_no time_epoch time_us [schedule_lag]
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import polars as pl

from storlab.errors import ParseError
from storlab.formats.pgbench.declared import METRICS
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import PERCENTILES, Value, percentile_name
from storlab.percentiles import percentiles

_NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_SUMMARY = {
    name: re.compile(pattern, re.M)
    for name, pattern in {
        "transactions": r"^number of transactions actually processed: (\d{1,15})(?:/\d+)?$",
        "errors": r"^number of failed transactions: (\d{1,15}) ",
        "latency.mean": rf"^latency average = {_NUMBER} ms$",
        "lag.mean": rf"^rate limit schedule lag: avg {_NUMBER} ",
        "tps": rf"^tps = {_NUMBER} \(without initial connection time\)$",
    }.items()
}
_SCALES = {"latency.mean": 1e-3, "lag.mean": 1e-3}
_FACTS = {"version": re.compile(r"^pgbench \((\S{1,40})", re.M)} | {
    name: re.compile(rf"^{words}: (.{{1,200}})$", re.M)
    for name, words in {
        "transaction type": "transaction type",
        "scaling factor": "scaling factor",
        "query mode": "query mode",
        "clients": "number of clients",
        "threads": "number of threads",
    }.items()
}
_COLUMNS = dict.fromkeys(("client", "number", "time", "script", "epoch", "us"), pl.Int64)
_DIGITS = 3  # of a latency in the histogram
_LONGEST = 10_000_000  # s, four months: what a damaged log says beyond that would be a sample each second all the same


def read_pgbench(text: str, logs: Iterable[bytes], source: str) -> Measurements:
    """Its summary and, where there are logs, the latency of each transaction and how many ended each second.

    Raises ``ParseError``.
    """
    numbers = {name: float(found[1]) for name, each in _SUMMARY.items() if (found := each.search(text)) is not None}
    if not {"transactions", "tps"} <= numbers.keys():
        raise ParseError("is no summary of pgbench: it lacks its transactions or its tps", source)
    values = [METRICS[name].value(number * _SCALES.get(name, 1)) for name, number in numbers.items()]
    facts: dict[str, object] = {
        name: found[1] for name, each in _FACTS.items() if (found := each.search(text)) is not None
    }
    log, damaged = _transactions(logs)
    if log.is_empty():
        return Measurements(metric_frame(values), facts=facts)
    histogram = _histogram(log)
    values = [value for value in values if value.metric != "latency.mean"]
    warnings = [f"{damaged} lines of its log are no transactions that were done; the others count"] if damaged else []
    return Measurements(
        metric_frame([*values, *_latencies(log, histogram)]),
        series=_series(log),
        histograms=histogram,
        warnings=tuple(warnings),
        facts=facts,
    )


def _transactions(logs: Iterable[bytes]) -> tuple[pl.DataFrame, int]:
    """All that were done, with their ``time`` and ``end`` in µs; and how many lines are none."""
    frames = [_read_log(text) for text in logs if text.strip()]
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=_COLUMNS)
    usable = (
        (pl.col("time") >= 0)
        & (pl.col("epoch") >= 0)
        & pl.col("us").is_between(0, 999_999)
        & (pl.col("epoch") < 2**40)
        & (pl.col("time") < 2**50)
    )
    whole = rows.filter(usable.fill_null(value=False))
    return whole.select("time", end=pl.col("epoch") * 1_000_000 + pl.col("us")), rows.height - whole.height


def _read_log(text: bytes) -> pl.DataFrame:
    first = b" ".join(b"0" for _ in _COLUMNS) + b"\n"  # which says how many columns there are
    return pl.read_csv(
        io.BytesIO(first + text),
        has_header=False,
        separator=" ",
        quote_char=None,
        schema=_COLUMNS,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    ).slice(1)


def _histogram(log: pl.DataFrame) -> pl.DataFrame:
    """``HISTOGRAM_COLUMNS``: bins as wide as the last of three digits, at least 1 µs."""
    time = pl.col("time")
    width = (10.0 ** (time.clip(1).cast(pl.Float64).log10() + 1e-9).floor().sub(_DIGITS - 1)).clip(1).cast(pl.Int64)
    bins = log.group_by(low=time // width * width, width=width).len().sort("low", "width")
    lower, upper = (pl.col("low") * 1e-6, (pl.col("low") + pl.col("width")) * 1e-6)
    job, metric = pl.lit(None, pl.String), pl.lit("latency")
    count = pl.col("len").cast(HISTOGRAM_COLUMNS["count"])
    return bins.select(job=job, metric=metric, lower=lower, upper=upper, count=count)


def _latencies(log: pl.DataFrame, histogram: pl.DataFrame) -> list[Value]:
    time = log["time"] * 1e-6
    exact = percentiles(histogram)
    return [
        METRICS["latency.mean"].value(float(time.sum()) / log.height),
        METRICS["latency.min"].value(float(log["time"].to_numpy().min()) * 1e-6),
        METRICS["latency.max"].value(float(log["time"].to_numpy().max()) * 1e-6),
        *(METRICS[f"latency.{percentile_name(p)}"].value(exact[p]) for p in PERCENTILES),
    ]


def _series(log: pl.DataFrame) -> pl.DataFrame:
    """Transactions that ended in each whole second since the first began; the last second is rarely whole."""
    begin = int((log["end"] - log["time"]).to_numpy().min())
    second = ((log["end"] - begin) // 1_000_000).alias("second")
    ended = log.select(second).group_by("second").len()
    last = int(second.to_numpy().max())
    if last > _LONGEST:
        return pl.DataFrame(schema=SERIES_COLUMNS)
    every = pl.DataFrame({"second": range(last)}, schema={"second": pl.Int64})
    rows = every.join(ended, on="second", how="left").with_columns(pl.col("len").fill_null(0))
    return rows.select(
        job=pl.lit(None, pl.String),
        metric=pl.lit("tps"),
        t=(pl.col("second") + 1).cast(pl.Float64),
        value=pl.col("len").cast(pl.Float64),
        unit=pl.lit("1/s"),
    )
