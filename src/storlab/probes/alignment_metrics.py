"""What the tracer counted, as metrics and histograms: ``docs/reference/metrics.md`` lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import polars as pl

from storlab.blockio.alignment import by_length, shares, unit_name, with_alignment
from storlab.blockio.ratios import ratios
from storlab.blockio.trace_output import Started, Trace
from storlab.measurements import HISTOGRAM_COLUMNS, Better, Measurements, Value, metric_frame
from storlab.percentiles import percentile_name, percentiles

_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_SECTOR = 512
_FAR = 1 << 30
"""Bytes: an offset aligned to this or more, 0 among them, stands as aligned to this in histograms."""

_BTF = "btf"
_HOOKS = {_BTF: "tp_btf", "tracepoint": "classic tracepoint"}
"""As the tracer has it, and as people say."""

_OTHERS: tuple[tuple[str, str, Better], ...] = (
    ("back_merge", "merges.back", "neither"),
    ("front_merge", "merges.front", "neither"),
    ("request_merge", "merges.request", "neither"),
    ("split", "splits", "neither"),
    ("requeue", "requeues", "lower"),
    ("error", "errors", "lower"),
)


def measurements(trace: Trace, notes: Sequence[str] = ()) -> Measurements:
    """All that follows from one trace, all its disks together."""
    return Measurements(
        metrics=metric_frame(_values(trace)),
        histograms=_histograms(trace),
        requests=trace.requests,
        warnings=(*notes, *_hook(trace.started), *_without(trace.started.without), *trace.warnings()),
        facts=_facts(trace.started),
    )


def _facts(started: Started) -> dict[str, object]:
    """Where in the kernel requests were seen, and why there."""
    facts: dict[str, object] = {"disks": list(started.disks), "hook": _HOOKS.get(started.hook, started.hook)}
    facts["why"] = started.reason or ("this kernel has BTF" if started.hook == _BTF else "unknown")
    return facts | ({"without": list(started.without)} if started.without else {})


def _hook(started: Started) -> tuple[str, ...]:
    if started.hook == _BTF:
        return ()
    why = f": {started.reason}" if started.reason else ""
    return (f"block I/O was counted at the classic tracepoints, which costs more for each request{why}",)


def _values(trace: Trace) -> Iterator[Value]:
    requests = trace.requests
    return chain(_totals(requests), ratios(requests), _below(requests), _others(trace), _times(trace))


def _without(events: Sequence[str]) -> tuple[str, ...]:
    return (f"this kernel does not tell of {', '.join(events)}: there are no counts of these",) if events else ()


def _totals(requests: pl.DataFrame) -> Iterator[Value]:
    """Requests and bytes of each operation; of reads and writes also where there were none."""
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    sums = requests.group_by("operation").agg(pl.col("count").sum(), size).sort("operation")
    found = {operation: (count, moved) for operation, count, moved in sums.iter_rows()}
    for operation in dict.fromkeys(("read", "write", *found)):
        count, moved = found.get(operation, (0, 0))
        yield Value(f"{operation}.requests", count, "1")
        if moved or operation in ("read", "write"):
            yield Value(f"{operation}.bytes", moved, "B")
    writes = requests.filter(pl.col("operation") == "write")
    for flag in ("fua", "meta") if writes.height else ():
        own = writes.filter(pl.col("flags").str.split("+").list.contains(flag))
        yield Value(f"write.{flag}.requests", int(own["count"].sum()), "1")
        yield Value(f"write.{flag}.bytes", int((own["count"] * own["length"]).sum()), "B")


def _below(requests: pl.DataFrame) -> Iterator[Value]:
    for row in shares(requests).iter_rows(named=True):
        if row["operation"] in ("read", "write"):
            yield Value(f"{row['operation']}.below.{unit_name(row['unit'])}", row["below"], "1", "lower", "sum")


def _others(trace: Trace) -> Iterator[Value]:
    """What became of requests on their way; of what reads and writes did never, 0."""
    counts = trace.others.group_by("operation", "what").agg(pl.col("count").sum())
    found = {(operation, what): count for operation, what, count in counts.iter_rows()}
    done = set(trace.requests["operation"]) & {"read", "write"}
    for operation in sorted(done | {operation for operation, _ in found}):
        for what, name, better in _OTHERS:
            count = found.get((operation, what), 0)
            if operation in done or count:
                yield Value(f"{operation}.{name}", count, "1", better, "sum")


def _times(trace: Trace) -> Iterator[Value]:
    for (operation, what), bins in _by_time(trace.latency):
        for percentile, seconds in percentiles(bins, _PERCENTILES).items():
            yield Value(f"{operation}.{what}.{percentile_name(percentile)}", seconds, "s", "lower", "merge")
        yield Value(f"{operation}.{what}.max", float(bins["upper"].to_list()[-1]), "s", "lower", "max")


def _by_time(latency: pl.DataFrame) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    """Operation, and which time: its bins over all disks, in order."""
    used = latency.filter(pl.col("count") > 0)
    for key in used.select("operation", "what").unique().sort("operation", "what").rows():
        own = used.filter(pl.col("operation") == key[0], pl.col("what") == key[1])
        yield (key[0], key[1]), own.group_by("lower", "upper").agg(pl.col("count").sum()).sort("lower")


def _histograms(trace: Trace) -> pl.DataFrame:
    lengths = by_length(trace.requests)
    parts = [_bins(lengths, "granularity", "length", pl.col("length") + _SECTOR)]
    offset = pl.col("offset_alignment")
    far = pl.when((offset == 0) | (offset > _FAR)).then(_FAR).otherwise(offset)
    data = with_alignment(trace.requests.with_columns(far.alias("near")).filter(pl.col("length") > 0))
    for column, name in (
        ("alignment", "alignment"),
        ("near", "offset-alignment"),
        ("length_alignment", "length-alignment"),
    ):
        counts = data.group_by("operation", column).agg(pl.col("count").sum())
        parts.append(_bins(counts, name, column, pl.col(column) * 2))
    for (operation, what), bins in _by_time(trace.latency):
        parts.append(_bins(bins.with_columns(operation=pl.lit(operation)), what, "lower", pl.col("upper")))
    return pl.concat(parts).sort("metric", "lower")


def _bins(counts: pl.DataFrame, name: str, lower: str, upper: pl.Expr) -> pl.DataFrame:
    return counts.select(
        pl.lit(None, pl.String).alias("job"),
        pl.concat_str(pl.col("operation"), pl.lit(f".{name}")).alias("metric"),
        pl.col(lower).cast(pl.Float64).alias("lower"),
        upper.cast(pl.Float64).alias("upper"),
        "count",
    ).cast(HISTOGRAM_COLUMNS)  # type: ignore[arg-type]
