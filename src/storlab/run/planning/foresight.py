"""What a plan can decide in its rounds, with the noise that is known of this machine or of the study's last run."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

from storlab.analysis.foresight import ASSUMED, Foresight, TypicalNoise, foresee
from storlab.analysis.noise_floor import noise_of
from storlab.analysis.stopping import spread_of
from storlab.analysis.summary import Summary, from_json
from storlab.errors import StorlabError
from storlab.reading import read_file
from storlab.run.noise import saved
from storlab.run.planning.design import design_of
from storlab.run.planning.metrics import foreseen
from storlab.run.planning.plan import Plan
from storlab.study.study import Study

RUNS = Path("runs")
"""Where runs go unless their user says otherwise: a folder ``STUDY-TIME`` each, in the current folder."""


def foresight_of(made: Plan) -> Foresight | None:
    """``None`` where the study compares nothing."""
    study = made.study
    planned = foreseen(study, made.unsupported, made.emulated)
    if not planned:
        return None
    least, most = made.rounds
    fewest = max(least, design_of(study).min_rounds)  # before its least number of rounds, no run ends with a verdict
    return foresee(planned, study.model.confidence, fewest, most, typical_noise(study))


def typical_noise(study: Study) -> TypicalNoise:
    """Of the study's last run in ``RUNS``, else of this machine as ``storlab noise`` measured it, else assumed."""
    if (last := _last_run(study)) is not None:
        return last
    measured = saved()
    if measured is not None:
        try:
            sd = noise_of(measured.values)[0].sd
        except ValueError:
            sd = math.nan
        if sd > 0:
            return TypicalNoise(
                sd, f"as those of {measured.study} did when `storlab noise` ran ({measured.measured[:10]})"
            )
    return TypicalNoise(ASSUMED, "(an assumption: `storlab noise` measures this machine)")


def runs_of(study: Study) -> list[Path]:
    """Folders in ``RUNS`` that are named after the study, the newest first; they may be of another one."""
    return sorted(RUNS.glob(f"{_escaped(Path(study.file).stem)}-*"), key=lambda path: path.name, reverse=True)


def _last_run(study: Study) -> TypicalNoise | None:
    """By the intervals of its comparisons; ``None`` where there is no run of this title that has some."""
    for folder in runs_of(study):
        try:
            summary = from_json(read_file(folder / "summary.json"))
        except (OSError, StorlabError):
            continue
        if summary.title == study.model.title and (spreads := _spreads(summary)):
            return TypicalNoise(median(spreads), f"as in its last run, {folder}")
    return None


def _spreads(summary: Summary) -> list[float]:
    """Of its comparisons by speed or time: what was counted says nothing of noise."""
    found = (spread_of(c) for c in summary.comparisons if c.unit != "1")
    return [spread for spread in found if spread is not None and spread > 0]


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
