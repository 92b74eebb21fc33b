"""What a report is made of: one run's summary, tables and manifest, with nothing left to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from storlab.analysis.summary import Summary
from storlab.records.columns import COLUMNS

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

    The frames have the columns of ``docs/reference/records.md``. Keys of ``manifest`` that reports read:
    ``title``, ``description``, ``study_text``, ``study_file``, ``seed``, ``run``, ``started``, ``finished``,
    ``storlab``, ``argv``, ``nodes``, ``plan``, ``platform_notes`` (sentences for the first lines) and ``cautions``
    (sentences that nobody may overlook there).
    ``facts`` is cell → node → layer → what that layer really was; ``guests`` is cell → node → what that virtual
    machine was.
    """

    summary: Summary
    trials: pl.DataFrame = field(default_factory=lambda: _no_rows(_TRIALS))
    metrics: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["metrics"]))
    series: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["series"]))
    histograms: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["histograms"]))
    findings: pl.DataFrame = field(default_factory=lambda: _no_rows(COLUMNS["findings"]))
    manifest: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[int, Mapping[str, Mapping[str, Facts]]] = field(default_factory=dict)
    guests: Mapping[int, Mapping[str, Facts]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The study's title; the manifest's where the summary has none."""
        return self.summary.title or str(self.manifest.get("title") or "Untitled study")
