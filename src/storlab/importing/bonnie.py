"""Bonnie++'s results: one trial a line, lines of the same machine as rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from storlab.formats.bonnie.results import read_bonnie
from storlab.formats.bonnie.run import TESTS, BonnieRun
from storlab.importing.importer import Importer, Part
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import declared_by
from storlab.text import printable

_TRAITS = ("file_size", "io_chunk_size", "concurrency", "num_files", "max_size", "min_size", "num_dirs")
_LONGEST = 63


class BonnieImporter(Importer):
    """CSV and text tables of all versions. The machine's name is a factor."""

    kind: ClassVar[str] = "bonnie"
    raw_name: ClassVar[str] = "bonnie.txt"
    primary: ClassVar[tuple[str, ...]] = ("write.block.bandwidth",)
    unknown: ClassVar[str] = "on which storage and file system it ran, nor what else ran meanwhile"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        runs, warnings = read_bonnie(text, source)
        return [_part(run, warnings if run is runs[0] else ()) for run in runs]


def _part(run: BonnieRun, warnings: Sequence[str]) -> Part:
    name = printable(run.name)[:_LONGEST] or "–"
    said = list(warnings)
    if run.too_short:
        tests = ", ".join(TESTS[test] for test in run.too_short)
        said.append(f"{name}, line {run.line}: no figure for {tests}, which ended in under 500 ms")
    values = list(run.values())
    measured = Measurements(
        metric_frame(values), warnings=tuple(said), facts={**run.facts}, declared=declared_by(values)
    )
    traits = {fact: printable(run.facts[fact])[:_LONGEST] for fact in _TRAITS if fact in run.facts}
    return Part(measured, {"machine": name}, traits=traits)
