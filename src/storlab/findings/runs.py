"""Findings about whole runs: why one ended, what its records lack, what its series say, how runs differ."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from storlab.findings.base import Finding


class RoundsDone(Finding, frozen=True):
    """How many rounds are done of those that are planned, or of the ``least`` that there must be."""

    done: int
    of: int
    least: bool = False


class Answered(Finding, frozen=True):
    """Comparisons that have what the rule asks for, and claims about values; ``never``: those that no rounds can give
    it.
    """

    until: str
    count: int
    never: int = 0
    precision: float = 0.0
    claims: int = 0


class Unanswered(Finding, frozen=True):
    """Comparisons that lack what the rule asks for, and claims about values that more rounds may answer."""

    until: str
    open: int
    of: int
    precision: float = 0.0
    claims: int = 0


class PointsKnown(Finding, frozen=True):
    """Points of a curve that are known to ± ``precision`` or better."""

    points: int
    metric: str
    precision: float


class PointsOpen(Finding, frozen=True):
    """Points of a curve that are not known well enough, and objectives that are not settled between two steps."""

    open: int
    of: int
    precision: float
    unsettled: int
    objectives: int


class PointsSteady(Finding, frozen=True):
    """All points are in steady state, by SNIA's rule; reported ``since`` that round."""

    points: int
    metric: str
    since: int


class PointsMoving(Finding, frozen=True):
    """Points that are not in steady state by SNIA's rule."""

    moving: int
    of: int
    metric: str


class Rested(Finding, frozen=True):
    """Why a cell was not run again: what all its comparisons have, or those ``with_answer``."""

    why: Literal["no answer", "gates", "precision", "decided"]
    with_answer: bool = False
    precision: float = 0.0


class Interrupted(Finding, frozen=True):
    """A run that can be resumed: it was interrupted, broke off, or goes on."""

    how: Literal["interrupted", "broke off", "goes on"]


class Unreachable(Finding, frozen=True):
    """A run stopped because machines can't be reached."""

    machines: tuple[str, ...]
    why: tuple[str, ...]


class RoundsAssigned(Finding, frozen=True):
    """A run did the rounds that it was assigned, of a run that several machines do."""

    first: int
    last: int


class MergedRuns(Finding, frozen=True):
    """A run was merged from several, or is part of one; which rounds it has."""

    runs: int
    rounds: tuple[int, ...]


class WasImported(Finding, frozen=True):
    """A run was imported."""


class RawUnreadable(Finding, frozen=True):
    """Raw records of a trial that cannot be read; ``why`` names the file, with "trials/…/" for the trial's folder."""

    why: str


class ProbeUnreadable(Finding, frozen=True):
    """What a probe left on a node cannot be read; ``why`` names the file."""

    probe: str
    node: str
    why: str


class TrialsMissing(Finding, frozen=True):
    """Trials that are missing from the folder of an imported run."""

    trials: tuple[int, ...]


class NotMerged(Finding, frozen=True):
    """Percentiles of several nodes that can't be merged, as not all have a histogram of latencies."""

    source: str


class TooFewSamples(Finding, frozen=True):
    """A probe has fewer than two samples in the measured phase, of all that it watched or of one thing."""

    probe: str
    of: str = ""


class NoCheckpoint(Finding, frozen=True):
    """No checkpoint of the database began while the load ran, so there is no dip of one."""

    database: str


class BegunAgain(Finding, frozen=True):
    """Transactions that were restarted after a deadlock or a conflict: how many of how many, in one trial or more."""

    counts: tuple[tuple[int, int], ...]


class InMemory(Finding, frozen=True):
    """Only a share of what was written, or read, reached the disk: rates are those of memory.

    ``cells``: the levels of those it is true of, or none if it is true of all ``of`` or of more than three.
    """

    way: Literal["write", "read"]
    least: float
    most: float
    cells: tuple[str, ...]
    count: int
    of: int


class SettingsChanged(Finding, frozen=True):
    """Trials changed settings: names with values before and after, and whether they did so alike; how that ended."""

    levels: str
    trials: int
    settings: tuple[tuple[str, str, str, bool], ...]
    ended: Literal["put back", "left", "stuck"]


class RunsNotInterleaved(Finding, frozen=True):
    """Some rounds of compared runs are no pairs: these differences are described, never judged."""


class MachinesApart(Finding, frozen=True):
    """Compared runs are not all of the same machines: each machine is shown by itself."""


class SidesDiffer(Finding, frozen=True):
    """A further factor in which the sides of a comparison of runs differ, with the level of each."""

    factor: str
    levels: tuple[tuple[str, str], ...]


class WhiskersDiffer(Finding, frozen=True):
    """Runs count outliers from different whiskers on: each with its interquartile ranges."""

    runs: tuple[tuple[str, float], ...]


class RunsDiffer(Finding, frozen=True):
    """A thing in which runs differ, and what each has; of the study's text, only that it differs."""

    what: str
    values: tuple[tuple[str, str], ...] = ()


class RoundsNotFixed(Finding, frozen=True):
    """A run could stop depending on what it had measured, after ``least`` to ``most`` rounds."""

    run: str
    least: int
    most: int


class Place(Struct, frozen=True):
    """The series that a finding is about. ``trials``: number and levels of each; ``of`` how many that have it."""

    source: str
    metric: str
    trials: tuple[tuple[int, str], ...]
    of: int
    levels: str = ""


class WarmUp(Finding, frozen=True):
    """The first seconds of a series look like warm-up (MSER-5); ``effect``: the largest change of the mean without."""

    series: Place
    shortest: float
    longest: float
    effect: float


class SeriesDrift(Finding, frozen=True):
    """A series rises or falls over the trial; shares are the extremes over trials, ``steps``: not gradually."""

    series: Place
    least: float
    most: float
    steps: bool


class LevelChange(Struct, frozen=True):
    """One trial's changes of level: how many, the largest as a share, when, and how it ends (0: not worth saying).

    ``levels``: before and after the largest, in the ``unit`` of the series; ``moved``: bytes until then, if known.
    """

    count: int
    step: float
    at: float
    ends: float
    levels: tuple[float, float]
    unit: str
    moved: float | None = None


class LevelChanges(Finding, frozen=True):
    """The level of a series changes within trials, beside the end of a warm-up."""

    series: Place
    each: tuple[LevelChange, ...]


class Stall(Finding, frozen=True):
    """A series stands still, at 1 % of its median at most, for so many seconds at most."""

    series: Place
    seconds: float


class NeverSteady(Finding, frozen=True):
    """A series is not steady by SNIA's rule, or not to its end, though it neither drifts nor changes its level."""

    series: Place


class AlikeNeighbours(Finding, frozen=True):
    """Samples that are alike: (least, most) of how many there are, of how many they are worth; the mean's ± then."""

    series: Place
    samples: tuple[int, int]
    worth: tuple[float, float]
    error: float
