"""What a report is made of: one run's summary, tables and manifest, with nothing left to compute."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

import polars as pl

from storlab.analysis.summary import Summary
from storlab.metrics import Declarations
from storlab.records.columns import COLUMNS
from storlab.records.manifest import Manifest
from storlab.report.escape import one_line

_TRIALS: dict[str, pl.DataType] = {
    "trial": pl.Int64(),
    "round": pl.Int64(),
    "cell": pl.Int64(),
    "status": pl.String(),
    "reason": pl.String(),
}

Facts = Mapping[str, object]


def _no_rows(columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))


@dataclass(frozen=True)
class ReportInput:
    """All that a report shows. Whatever is missing or empty is left out of the report, never guessed.

    The frames have the columns of ``docs/reference/records.md``. ``facts`` is cell → node → layer → what that layer
    really was; ``guests`` is cell → node → what that virtual machine was; ``declared``: what the
    metrics are.
    """

    summary: Summary
    trials: pl.DataFrame = field(default_factory=lambda: _no_rows(_TRIALS))
    metrics: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["metrics"]))
    series: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["series"]))
    histograms: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["histograms"]))
    findings: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["findings"]))
    declared: Declarations = field(default_factory=Declarations)
    manifest: Manifest | None = None
    facts: Mapping[int, Mapping[str, Mapping[str, Facts]]] = field(default_factory=dict)
    guests: Mapping[int, Mapping[str, Facts]] = field(default_factory=dict)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences that nobody may overlook in the first lines."""
        return self.manifest.cautions if self.manifest else ()

    @property
    def study(self) -> str:
        """The study's text; empty where there is none."""
        return self.manifest.study_text if self.manifest else ""

    @property
    def commands(self) -> list[str]:
        """Shell lines, each of one line, that repeat the run: as it was started, and with the same order."""
        if self.manifest is None:
            return []
        argv = list(self.manifest.argv)
        if argv and PurePath(argv[0]).name == "storlab":
            argv[0] = "storlab"  # wherever it was installed
        lines = [shlex.join(argv)] if argv else []
        if self.manifest.study_file and "--seed" not in argv:
            again = argv if argv[1:2] == ["run"] else ["storlab", "run", self.manifest.study_file]
            lines.append(shlex.join([*again, "--seed", str(self.manifest.seed)]))
        return [one_line(line) for line in lines]

    @property
    def title(self) -> str:
        """The study's title; the manifest's where the summary has none."""
        return self.summary.title or (self.manifest.title if self.manifest else "") or "Untitled study"
