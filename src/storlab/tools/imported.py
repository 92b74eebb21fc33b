"""What a run was imported from: its files, the trials in them, and the design that these have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from storlab.base.record import Count, Number
from storlab.base.text import grouped
from storlab.metrics import END, PROBE, WHISKERS

NODE = "imported"
"""The node of what was imported, but for clients, which are numbered unless their files name them."""
HOST = "host"
"""The machine that nodes ran on."""
HOST_LOAD = f"{PROBE}host-load{END}{HOST}"
"""The source of its load averages."""
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Order = Literal["times", "given"]
"""How the order in which trials were measured is known: all files name it, or their user gave them in that order."""


class ImportedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file: its name as it was given, the levels that its user gave it, and what else was said of it."""

    name: str
    levels: dict[str, str]
    options: dict[str, Any] = {}
    beside: list[str] = []  # names of files of the same folder, kept with it
    node: Annotated[str, Meta(pattern=f"{NODE_NAME}|^$")] = ""  # where it is known


class ImportedTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of which file a trial is, both from 0, and its place in the run. ``levels`` are all of its cell.

    ``others``: of a trial of several clients, those of the others.
    """

    file: Count
    part: Count
    cell: Number
    round: Number
    levels: dict[str, str]
    turn: Count = 0  # its place in the order of measurement, from 1, where cells took turns
    others: list[tuple[Count, Count]] = []

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(self.file, self.part), *self.others]


class Imported(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run was imported from. Trial n is ``trials[n - 1]``; the trials of a file follow each other.

    ``factors``: their levels in the order in which they are shown. ``turns``: how their order is known, where cells
    took turns, which is the word of who imported them; else empty. ``notes``: sentences on what else set-ups differ
    in, and on what are no repeats. ``whiskers``: from where on samples within a trial are outliers.
    """

    kind: str
    files: tuple[ImportedFile, ...]
    trials: Annotated[tuple[ImportedTrial, ...], Meta(min_length=1)]
    factors: dict[str, tuple[str, ...]]
    primary: str
    turns: Order | Literal[""] = ""
    notes: tuple[str, ...] = ()
    whiskers: Annotated[float, Meta(gt=0, le=1000)] = WHISKERS

    def __post_init__(self) -> None:
        for trial in self.trials:
            if trial.levels.keys() != self.factors.keys():
                raise ValueError("its trials have different factors")
            for file, _ in trial.places:
                if file >= len(self.files):
                    raise ValueError(f"there is no file {file}")
            if len(self.nodes(trial)) < len(trial.places):
                raise ValueError("a trial has two files of one node")

    def nodes(self, trial: ImportedTrial) -> dict[str, tuple[int, int]]:
        """Node → which part of which file is its. Without a name, which machine it was is not known."""
        numbered = (f"client-{number}" for number in range(1, len(trial.places) + 1)) if trial.others else (NODE,)
        return {self.files[place[0]].node or name: place for name, place in zip(numbered, trial.places, strict=True)}

    @property
    def cells(self) -> tuple[tuple[int, dict[str, str]], ...]:
        return tuple(sorted({trial.cell: trial.levels for trial in self.trials}.items(), key=lambda cell: cell[0]))

    @property
    def compared(self) -> str:
        """The factor whose levels are compared where cells took turns: the first one that has several."""
        return next((name for name, levels in self.factors.items() if len(levels) > 1), next(iter(self.factors), ""))

    def order(self, done: Collection[int]) -> tuple[tuple[int, ...], ...]:
        """Of each round the cells in the order in which they were measured, of trials (by number) that are ``done``.

        Empty where they took no turns.
        """
        if not self.turns:
            return ()
        those = (trial for number, trial in enumerate(self.trials, start=1) if number in done)
        rounds = grouped((trial.round, trial.cell) for trial in sorted(those, key=lambda trial: trial.turn))
        return tuple(map(tuple, rounds.values()))
