"""Bonnie++'s results: one trial a line, lines of the same machine as rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from storlab.measurements import Measurements, metric_frame
from storlab.text import printable
from storlab.tools.bonnie.declared import declared
from storlab.tools.bonnie.results import read_bonnie
from storlab.tools.bonnie.run import BonnieRun
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import read_passed_on, under_headings

_TRAITS = (
    *("file_size", "io_chunk_size", "concurrency", "seek_count", "seek_processes", "num_files", "max_size", "min_size"),
    *("num_dirs", "file_chunk_size"),
)
_LONGEST = 63
_OLD = "1.0"
_APART = (
    "Bonnie++ {} and 2.00a, which the workload bonnie runs, are not comparable: by characters, the old one writes and "
    "reads through a buffer, and 2.00a makes a system call for each; the old one seeks 8000 times by 3 processes, and "
    "2.00a 8192 times by 5."
)


class BonnieImporter(Importer):
    """CSV and text tables of all versions. The machine's name is a factor."""

    kind: ClassVar[str] = "bonnie"
    raw_name: ClassVar[str] = "bonnie.txt"
    primary: ClassVar[tuple[str, ...]] = ("write.block.bandwidth",)
    unknown: ClassVar[str] = "on which storage and file system it ran, nor what else ran meanwhile"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return read_passed_on(text, lambda shown: _parts(shown, source))

    def notes(self, parts: Sequence[Part]) -> Sequence[str]:
        """Lines of CSV that name no version are of 1.03."""
        versions = {str(part.measured.facts.get("bonnie_version", "1.03")) for part in parts}
        return [_APART.format(version) for version in sorted(versions) if version.startswith(_OLD)]


def _parts(text: bytes, source: str) -> Sequence[Part]:
    runs, warnings = read_bonnie(text, source)
    return under_headings(text, [(run.line, _part(run, warnings if run is runs[0] else ())) for run in runs])


def _part(run: BonnieRun, warnings: Sequence[str]) -> Part:
    name = printable(run.name)[:_LONGEST] or "–"
    said = list(warnings)
    if untold := run.untold():
        said.append(f"{name}, line {run.line}: {untold}")
    values = list(run.values())
    measured = Measurements(metric_frame(values), warnings=tuple(said), facts=run.told(), declared=declared())
    traits = {fact: printable(run.facts[fact])[:_LONGEST] for fact in _TRAITS if fact in run.facts}
    return Part(measured, {"machine": name}, traits=traits)
