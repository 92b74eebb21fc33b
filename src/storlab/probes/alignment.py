"""Probe ``alignment``: how block requests lie in the units of a file system or a device, counted in the kernel.

The agent's tracer (``docs/reference/trace-output.md``) counts every request as it is issued, from before the load
starts until it has ended and, with ``sync``, what it wrote is on the disk. Nothing is sampled, and nothing is cut
to the measured phase: counters on many CPUs can't be read at one instant while requests go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import BeforeValidator, Field

from storlab.base.errors import ParseError, StorlabError
from storlab.base.reach import Choice
from storlab.base.text import is_whole
from storlab.base.units import size_text
from storlab.blockio.requests import (
    KEYS,
    RATIOS,
    UNITS,
    WAYS,
    added_up,
    by_length,
    data_requests,
    ratios_by,
    shares,
    with_alignment,
)
from storlab.blockio.text import counted_twice, is_off_boundary, off_boundary, without_requests
from storlab.blockio.trace_output import LATENCY_COLUMNS, OTHER_COLUMNS, Counts, Output, Started, read_output
from storlab.measurements import HISTOGRAM_COLUMNS, REQUEST_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value, percentiles_of
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.percentiles import percentiles_of_each
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord, read_notes
from storlab.probes.subject import End, Kind, Subject

_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_SECTOR = 512
_FAR = 1 << 30
"""Bytes: an offset aligned to this or more, 0 among them, stands as aligned to this in histograms."""

_TRACE = "trace"
"""The column with the number of the trace, of several, that a row is of."""
_Numbered = tuple[int, Value]

_BTF = "btf"
_HOOKS = {_BTF: "tp_btf", "tracepoint": "classic tracepoint"}
"""As the tracer has it, and as people say."""

_REQUESTS = MetricSpec("{operation}.requests", "1", noun="{operation} requests")
_BYTES = MetricSpec("{operation}.bytes", "B", noun="in {operation} requests")
_FLAGGED = {
    flag: (
        MetricSpec(f"write.{flag}.requests", "1", noun=f"write requests with {flag}"),
        MetricSpec(f"write.{flag}.bytes", "B", evidence="none"),
    )
    for flag in ("fua", "meta")
}
_BELOW = {
    (way, unit): MetricSpec(f"{way}.below.{size_text(unit)}", "1", "lower", granule=unit)
    for way in WAYS
    for unit in UNITS
}
_OTHERS = {
    "back_merge": MetricSpec("{operation}.merges.back", "1", noun="back merges of {operation} requests"),
    "front_merge": MetricSpec("{operation}.merges.front", "1", noun="front merges of {operation} requests"),
    "request_merge": MetricSpec("{operation}.merges.request", "1", noun="merges of two {operation} requests"),
    "split": MetricSpec("{operation}.splits", "1", noun="splits of {operation} requests"),
    "requeue": MetricSpec("{operation}.requeues", "1", "lower", noun="{operation} requests sent back"),
    "error": MetricSpec("{operation}.errors", "1", "lower", noun="{operation} requests that failed", evidence="rare"),
}
_OF_TIMES = {
    what: (
        *percentiles_of(f"{{operation}}.{what}", _PERCENTILES),
        # Where the last bin ends, and no time of any.
        MetricSpec(f"{{operation}}.{what}.max", "s", "lower", "max", tail=True, evidence="none"),
    )
    for what in ("service", "queued")
}
_SIZES = (
    MetricSpec("{operation}.granularity", "B", quantity="request length"),
    MetricSpec("{operation}.length-alignment", "B", quantity="request length alignment"),
    MetricSpec("{operation}.alignment", "B", quantity="request alignment"),
    MetricSpec("{operation}.offset-alignment", "B", quantity="request offset"),
)
METRICS = (
    *(_REQUESTS, _BYTES, *RATIOS, *_BELOW.values()),
    *(spec for both in _FLAGGED.values() for spec in both),
    *_OTHERS.values(),
    *(MetricSpec(f"{{operation}}.{what}", "s", "lower", "merge", "latency") for what in _OF_TIMES),
    *(spec for specs in _OF_TIMES.values() for spec in specs),
    *_SIZES,
)


@dataclass(frozen=True)
class _Counted:
    """What each of several tracers counted, all its disks together. In each frame its number, ``trace``, comes first.

    ``requests``: ``REQUEST_COLUMNS``; ``latency``: ``LATENCY_COLUMNS`` without ``disk``, only bins that are used.
    """

    traces: range
    requests: pl.DataFrame
    latency: pl.DataFrame
    others: pl.DataFrame


def measurements(outputs: Sequence[Output], notes: Sequence[Sequence[str]]) -> list[Measurements]:
    """All that follows from what each tracer printed, all its disks together; ``notes`` of each come before its
    warnings. Many at once take little longer than one.
    """
    counted = _counted([output.counts for output in outputs])
    values: list[list[Value]] = [[] for _ in outputs]
    of_traces = ((int(str(trace)), value) for (trace,), value in ratios_by(counted.requests, [_TRACE]))
    found = (_totals(counted), of_traces, _below(counted.requests), _others(counted), _times(counted.latency))
    for trace, value in chain(*found):
        values[trace].append(value)
    metrics = _cut(metric_frame(chain(*values)), [len(each) for each in values])
    frames = (_by_trace(frame, len(outputs)) for frame in (_histograms(counted), counted.requests))
    return [
        Measurements(
            metrics=own,
            histograms=histograms,
            requests=requests,
            warnings=(*said, *_cautions(output.started), *output.warnings()),
            facts=_facts(output.started),
        )
        for output, said, own, histograms, requests in zip(outputs, notes, metrics, *frames, strict=True)
    ]


def _counted(counts: Sequence[Counts]) -> _Counted:
    requests = _numbered([each.request_rows() for each in counts], REQUEST_COLUMNS)
    latency = _numbered([each.latency_rows() for each in counts], LATENCY_COLUMNS).filter(pl.col("count") > 0)
    keys = [_TRACE, "operation", "what", "lower", "upper"]
    return _Counted(
        range(len(counts)),
        added_up(requests, [_TRACE, *KEYS]),
        latency.group_by(keys).agg(pl.col("count").sum()).sort(keys),
        _numbered([each.others for each in counts], OTHER_COLUMNS),
    )


def _numbered(rows: Sequence[Sequence[Sequence[object]]], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    numbered = [(trace, *row) for trace, own in enumerate(rows) for row in own]
    return pl.DataFrame(numbered, schema={_TRACE: pl.Int64(), **columns}, orient="row")


def _by_trace(frame: pl.DataFrame, traces: int) -> list[pl.DataFrame]:
    return _cut(frame.drop(_TRACE), np.bincount(frame[_TRACE].to_numpy(), minlength=traces).tolist())


def _cut(frame: pl.DataFrame, heights: Sequence[int]) -> list[pl.DataFrame]:
    return [frame[end - height : end] for height, end in zip(heights, accumulate(heights), strict=True)]


def _facts(started: Started) -> dict[str, object]:
    facts: dict[str, object] = {"disks": list(started.disks), "hook": _HOOKS.get(started.hook, started.hook)}
    facts["why"] = started.reason or ("this kernel has BTF" if started.hook == _BTF else "unknown")
    return facts | ({"without": list(started.without)} if started.without else {})


def _cautions(started: Started) -> Iterator[str]:
    if started.hook != _BTF:
        why = f": {started.reason}" if started.reason else ""
        yield f"block I/O was counted at the classic tracepoints, which costs more for each request{why}"
    if started.without:
        yield f"this kernel does not report {', '.join(started.without)}: there are no counts of these"


def _totals(counted: _Counted) -> Iterator[_Numbered]:
    """Requests and bytes of each operation; of reads and writes also where there were none."""
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    keys = [_TRACE, "operation"]
    sums = counted.requests.group_by(keys).agg(pl.col("count").sum(), size).sort(keys)
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for trace, operation, count, moved in sums.iter_rows():
        found.setdefault(trace, {})[operation] = (count, moved)
    flagged = {flag: _flagged(counted.requests, flag) for flag in _FLAGGED}
    for trace in counted.traces:
        own = found.get(trace, {})
        for operation in dict.fromkeys((*WAYS, *own)):
            count, moved = own.get(operation, (0, 0))
            yield trace, _REQUESTS.value(count, operation=operation)
            if moved or operation in WAYS:
                yield trace, _BYTES.value(moved, operation=operation)
        for flag, sums_of in flagged.items() if "write" in own else ():
            for spec, number in zip(_FLAGGED[flag], sums_of.get(trace, (0, 0)), strict=True):
                yield trace, spec.value(number)


def _flagged(requests: pl.DataFrame, flag: str) -> dict[int, tuple[int, int]]:
    own = requests.filter(pl.col("operation") == "write", pl.col("flags").str.split("+").list.contains(flag))
    size = (pl.col("count") * pl.col("length")).sum().alias("bytes")
    sums = own.group_by(_TRACE).agg(pl.col("count").sum(), size)
    return {trace: (count, moved) for trace, count, moved in sums.iter_rows()}


def _below(requests: pl.DataFrame) -> Iterator[_Numbered]:
    for row in shares(requests, by=[_TRACE, "operation"]).iter_rows(named=True):
        if row["operation"] in WAYS:
            yield row[_TRACE], _BELOW[row["operation"], row["unit"]].value(row["below"])


def _others(counted: _Counted) -> Iterator[_Numbered]:
    """What became of requests on their way; of what reads and writes did never, 0."""
    counts = counted.others.group_by(_TRACE, "operation", "what").agg(pl.col("count").sum())
    found = {(trace, operation, what): count for trace, operation, what, count in counts.iter_rows()}
    all_done = counted.requests.select(_TRACE, "operation").unique().rows()
    done = {(trace, operation) for trace, operation in all_done if operation in WAYS}
    for trace, operation in sorted(done | {(trace, operation) for trace, operation, _ in found}):
        for what, spec in _OTHERS.items():
            count = found.get((trace, operation, what), 0)
            if (trace, operation) in done or count:
                yield trace, spec.value(count, operation=operation)


def _times(latency: pl.DataFrame) -> Iterator[_Numbered]:
    keys = latency.select(_TRACE, "operation", "what").to_struct()
    begins = keys.is_first_distinct().to_numpy()  # they are sorted
    lower, upper, counts = (latency[name].to_numpy() for name in ("lower", "upper", "count"))
    each = percentiles_of_each(np.cumsum(begins) - 1, lower, upper, counts, _PERCENTILES)
    slowest = upper[np.append(begins[1:], True)] if len(upper) else upper
    for key, found, most in zip(keys.filter(begins), each, slowest.tolist(), strict=True):
        *percentiles, longest = _OF_TIMES[key["what"]]
        for spec, seconds in zip(percentiles, found.values(), strict=True):
            yield key[_TRACE], spec.value(seconds, operation=key["operation"])
        yield key[_TRACE], longest.value(most, operation=key["operation"])


def _histograms(counted: _Counted) -> pl.DataFrame:
    by = (_TRACE, "operation")
    lengths = by_length(counted.requests, by)
    parts = [_bins(lengths, pl.lit("granularity"), "length", pl.col("length") + _SECTOR)]
    offset = pl.col("offset_alignment")
    far = pl.when((offset == 0) | (offset > _FAR)).then(_FAR).otherwise(offset)
    data = with_alignment(data_requests(counted.requests.with_columns(far.alias("near"))))
    for column, name in (
        ("alignment", "alignment"),
        ("near", "offset-alignment"),
        ("length_alignment", "length-alignment"),
    ):
        counts = data.group_by(*by, column).agg(pl.col("count").sum())
        parts.append(_bins(counts, pl.lit(name), column, pl.col(column) * 2))
    parts.append(_bins(counted.latency, pl.col("what"), "lower", pl.col("upper")))
    return pl.concat(parts).sort(_TRACE, "metric", "lower", maintain_order=True)


def _bins(counts: pl.DataFrame, name: pl.Expr, lower: str, upper: pl.Expr) -> pl.DataFrame:
    return counts.select(
        _TRACE,
        pl.lit(None, pl.String).alias("job"),
        pl.concat_str(pl.col("operation"), pl.lit("."), name).alias("metric"),
        pl.col(lower).cast(pl.Float64).alias("lower"),
        upper.cast(pl.Float64).alias("upper"),
        "count",
    ).cast({_TRACE: pl.Int64(), **HISTOGRAM_COLUMNS})  # type: ignore[dict-item]


ALL = "all"
_KINDS = """for disk; do
    folder=/sys/class/block/$disk
    test -e "$folder" || continue
    whole=$folder
    if test -e "$folder/partition"; then
        whole=$(readlink -f "$folder/..")
        echo partition "$disk" "$(cat "$folder/start")"
    fi
    test -e "$whole/mq" || echo bios "$disk" $(ls "$whole/slaves" 2>/dev/null)
done"""
"""A shell script that lists partitions with their first sectors, and disks that take bios with the underlying ones."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class AlignmentProbe(AgentProbe):
    """Counts block requests by operation, flags, length and alignment, with their latencies, by eBPF."""

    kind: ClassVar[str] = "alignment"
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    in_slices: ClassVar[frozenset[str]] = frozenset(spec.name for spec in METRICS)
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    output: ClassVar[str] = "trace.jsonl"
    missing: ClassVar[str] = "there was no disk to watch"
    refused: ClassVar[str] = "block I/O was not watched"
    most: ClassVar[int] = 2 * 1024**3  # a line for each request is some 70

    at: Literal["load", "below", "each"] = Field(
        "load",
        description="At which end of a chain. `load`: the disk under test, on each node where the load runs. `below`: "
        "the disks that those lie on, on the nodes that serve them and below guests. `each`: both.",
    )
    disks: Annotated[tuple[Choice, ...], BeforeValidator(_listed)] = Field(
        (), description='Kernel names of disks or partitions, or "all"; by default those of that end.'
    )
    by_comm: bool = Field(False, description="Count the requests of each command separately.")
    latency: bool = Field(True, description="Measure how long requests take, and how long they wait before.")
    events: bool = Field(False, description="Keep each request as a line of the raw records, too.")
    sync: bool = Field(
        True, description="Keep counting until everything written is on the disk, not only until the load has ended."
    )

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        return self.at in (end, "each") and (bool(self.disks) or super().watches_at(end, kinds))

    def needs(self) -> Needs:
        return Needs(root="tracing block I/O")

    def parse(self, record: ProbeRecord) -> Measurements:
        (found,) = self.parse_many([record])
        if isinstance(found, StorlabError):
            raise found
        return found

    def parse_many(self, records: Sequence[ProbeRecord]) -> list[Measurements | StorlabError]:
        found = [self._read(each) for each in records]
        traces = [each for each in found if isinstance(each, tuple)]
        measured = iter(measurements([output for output, _ in traces], [notes for _, notes in traces]))
        return [next(measured) if isinstance(each, tuple) else each for each in found]

    def _read(self, record: ProbeRecord) -> tuple[Output, tuple[str, ...]] | Measurements | ParseError:
        try:
            path, notes = record.raw / self.output, read_notes(record.raw)
            return (read_output(path), notes) if path.exists() else super().parse(record)
        except ParseError as error:
            return error

    def watched(self, subject: Subject) -> tuple[str, ...] | None:
        """Names of the disks to watch; empty: all; ``None``: there is none."""
        if ALL in self.disks:
            return ()
        return self.disks or subject.disks or None

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str] | None:
        disks = self.watched(context.subject)
        if disks is None:
            notes.append("there is no underlying disk whose requests could be watched")
            return None
        notes += await _said_of(context.node, disks) if disks else ()
        options = (("--by-comm", self.by_comm), ("--no-latency", not self.latency), ("--events", self.events))
        words = [word for disk in disks for word in ("--disk", disk)]
        return ["trace", *words, *(option for option, wanted in options if wanted)]

    async def before_the_end(self, context: ProbeContext) -> None:
        if self.sync:
            await context.node.run(["sync"], check=False)


async def _said_of(node: Node, disks: Sequence[str]) -> list[str]:
    found = await node.run(["sh", "-c", _KINDS, "sh", *disks], check=False)
    said = []
    for line in found.stdout.decode(errors="replace").splitlines():
        match line.split():
            case ["partition", disk, start] if is_whole(start) and is_off_boundary(int(start)):
                said.append(off_boundary(disk, int(start)))
            case ["bios", disk, *underlying]:
                said.append(without_requests(disk, underlying))
                if both := [each for each in underlying if each in disks]:
                    said.append(counted_twice(disk, both))
    return said
