"""What is known before anything runs: how long a round will take, what can be decided, and where that comes from.

The best source is the study's last run; then what loads say of their own length; then their amount of work, at a speed
that was measured on this machine or is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from storlab.analysis.foresight import ASSUMED, Foresight, TypicalNoise, foresee, noise_of
from storlab.analysis.stopping import spread_of
from storlab.analysis.summary import from_json
from storlab.base.errors import StorlabError
from storlab.base.reading import read_file
from storlab.records.run_folder import RunFolder
from storlab.run.noise import BUILT_IN_BLOCK, BUILT_IN_TITLE, MachineNoise, saved
from storlab.run.planning.design import bet_of, design_of
from storlab.run.planning.horizon import horizon_of
from storlab.run.planning.metrics import foreseen
from storlab.run.planning.order import OVERHEAD, start_time, time_with
from storlab.run.planning.plan import Plan
from storlab.study.study import Study
from storlab.workloads.base import Work


def foresight_of(made: Plan) -> Foresight | None:
    """``None`` if the study compares nothing."""
    study = made.study
    planned = foreseen(study, made.unsupported, made.emulated)
    if not planned:
        return None
    least, most = made.rounds
    fewest = max(least, design_of(study).min_rounds)  # before its least number of rounds, no run ends with a verdict
    horizon = horizon_of(study, made.rounds)
    bet = None if horizon is None else bet_of(horizon)
    return foresee(planned, study.model.confidence, fewest, most, typical_noise(study), bet)


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
    name = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in Path(study.file).stem)
    return sorted(RUNS.glob(f"{name}-*"), key=lambda path: path.name, reverse=True)


def _last_run(study: Study) -> TypicalNoise | None:
    """By the intervals of its comparisons; ``None`` if there is no run of this title that has some."""
    for folder in runs_of(study):
        try:
            summary = from_json(read_file(folder / "summary.json"))
        except (OSError, StorlabError):
            continue
        # By speed or time: what was counted says nothing of noise.
        found = (spread_of(comparison) for comparison in summary.comparisons if comparison.unit != "1")
        spreads = [spread for spread in found if spread is not None and spread > 0]
        if summary.title == study.model.title and spreads:
            return TypicalNoise(median(spreads), f"as in its last run, {folder}")
    return None


RUNS = Path("runs")
"""Where runs go unless their user says otherwise: a folder ``STUDY-TIME`` each, in the current folder."""
ASSUMED_BANDWIDTH = 200 * 1024.0**2  # B/s: of one SATA SSD, or of a busy virtual machine's disk
ASSUMED_RATE = 1000.0  # operations/s that each wait for storage: of an SSD without protection from power loss
_MOST_RUNS = 10  # of a study that are looked through for one of the same text


@dataclass(frozen=True)
class Speed:
    """What amounts of work are divided by. ``measured``: when ``storlab noise`` measured the rate; empty: assumed."""

    bandwidth: float
    rate: float
    measured: str = ""

    def seconds(self, work: Work) -> float:
        spent = work.moved / self.bandwidth + work.waits / self.rate
        return spent if work.longest is None else min(spent, work.longest)


@dataclass(frozen=True)
class RoundTime:
    """Seconds of a round of all cells that can run here.

    ``last_run``: whose trials took that; ``by_work``: loads whose length was reckoned from their amount of work, at
    ``speed``; ``unknown``: those that have neither, and of which nothing is included.
    """

    seconds: float
    last_run: Path | None = None
    by_work: tuple[str, ...] = ()
    speed: Speed | None = None
    unknown: tuple[str, ...] = ()


def round_time(made: Plan) -> RoundTime:
    """By the study's last run where there is one of the same text, else by its loads."""
    return _as_last_time(made) or _by_loads(made)


def _by_loads(made: Plan) -> RoundTime:
    noise = saved()
    speed = speed_of(noise)
    measured = noise.overhead if noise is not None else None
    overhead = max(OVERHEAD, measured) if measured is not None else OVERHEAD
    # Cells of one block share what is kept for a round; one that is in none shares it with no other.
    apart = {made.blocks.get(cell.number, -cell.number): cell for cell in made.supported}
    seconds = sum(start_time(cell, "round") for cell in apart.values())
    by_work, unknown = dict[str, None](), dict[str, None]()
    for cell in made.supported:
        times = []
        for load in cell.loads:
            declared, work = load.workload.duration(cell.trial.warm_up), load.workload.work()
            if declared is None and work is None:
                unknown[load.name] = None
            elif declared is None and work is not None:
                by_work[load.name] = None
                # On all of its nodes, which share this machine's storage.
                nodes = sum(cell.nodes[group].count for group in load.groups if group in cell.nodes)
                everywhere = Work(work.moved * nodes, work.waits * nodes, work.longest)
                declared = cell.trial.warm_up + speed.seconds(everywhere)
            times.append(declared or 0.0)
        seconds += time_with(cell, times, overhead) or 0.0
    return RoundTime(seconds, None, tuple(by_work), speed if by_work else None, tuple(unknown))


def speed_of(noise: MachineNoise | None) -> Speed:
    """With the rate of small direct writes that ``storlab noise`` measured, by its own study."""
    if noise is None or noise.title != BUILT_IN_TITLE or not noise.values or median(noise.values) <= 0:
        return Speed(ASSUMED_BANDWIDTH, ASSUMED_RATE)
    return Speed(ASSUMED_BANDWIDTH, median(noise.values) / BUILT_IN_BLOCK, noise.measured[:10])


def _as_last_time(made: Plan) -> RoundTime | None:
    for folder in runs_of(made.study)[:_MOST_RUNS]:
        try:
            spent = _trials_of(RunFolder.open(folder), made.study)
        except (OSError, StorlabError):
            continue
        known = [spent.get(tuple(cell.levels.items())) for cell in made.supported]
        if known and all(known):
            return RoundTime(sum(fmean(times) for times in known if times), folder)
    return None


def _trials_of(run: RunFolder, study: Study) -> dict[tuple[tuple[str, str], ...], list[float]]:
    """Seconds of each trial that was done, by levels; nothing of a run of another text, or with other overrides."""
    manifest = run.manifest
    if (manifest.study_text, manifest.overrides) != (study.text, study.overrides):
        return {}
    spent: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for record in run.records():
        if record.status == "done" and record.duration is not None:
            spent.setdefault(tuple(record.levels.items()), []).append(record.duration)
    return spent
