"""Bonnie++'s results: one trial a line, lines of the same machine as rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from storlab.measurements import Measurements, Value, metric_frame
from storlab.records.importers.base import Importer, Part
from storlab.records.importers.bonnie_formats import read_bonnie
from storlab.records.importers.bonnie_run import IN_BYTES, TESTS, BonnieRun
from storlab.units import printable

_KIB = 1024.0
_NAMES = {
    "putc": "write.char",
    "put_block": "write.block",
    "rewrite": "rewrite",
    "getc": "read.char",
    "get_block": "read.block",
    "seeks": "seek",
    "seq_create": "sequential.create",
    "seq_stat": "sequential.stat",
    "seq_del": "sequential.delete",
    "ran_create": "random.create",
    "ran_stat": "random.stat",
    "ran_del": "random.delete",
}
"""Bonnie++'s name of a test → ours, by which its metrics begin."""

_TRAITS = ("file_size", "io_chunk_size", "concurrency", "num_files", "max_size", "min_size", "num_dirs")
_LONGEST = 63


class BonnieImporter(Importer):
    """CSV and text tables of all versions. The machine's name is a factor."""

    kind: ClassVar[str] = "bonnie"
    raw_name: ClassVar[str] = "bonnie.txt"
    primary: ClassVar[str] = "bandwidth"
    unknown: ClassVar[str] = "on which storage and file system it ran, nor what else ran meanwhile"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        runs, warnings = read_bonnie(text, source)
        return [_part(run, warnings if run is runs[0] else ()) for run in runs]


def _part(run: BonnieRun, warnings: Sequence[str]) -> Part:
    name = printable(run.name)[:_LONGEST] or "–"
    said = list(warnings)
    if run.too_short:
        tests = ", ".join(_NAMES[test] for test in run.too_short)
        said.append(f"{name}, line {run.line}: no figure for {tests}, which ended in under 500 ms")
    measured = Measurements(metrics=metric_frame(_values(run)), warnings=tuple(said), facts={**run.facts})
    traits = {fact: printable(run.facts[fact])[:_LONGEST] for fact in _TRAITS if fact in run.facts}
    return Part(measured, {"machine": name}, traits=traits)


def _values(run: BonnieRun) -> Iterator[Value]:
    for test in TESTS:
        name = _NAMES[test]
        if test in run.rates and test in IN_BYTES:
            yield Value(f"{name}.bandwidth", run.rates[test] * _KIB, "B/s", "higher")
        elif test in run.rates:
            yield Value(f"{name}.rate", run.rates[test], "1/s", "higher")
        if test in run.cpu:
            yield Value(f"{name}.cpu", run.cpu[test] / 100, "1", "neither", "mean")
        if test in run.latencies:
            yield Value(f"{name}.latency.max", run.latencies[test], "s", "lower", "max")
