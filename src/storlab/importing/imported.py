"""What a run was imported from: its files, the trials in them, and the design that these have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from storlab.grouping import grouped
from storlab.record import Count, Number

NODE = "imported"
"""The node of what was imported, but for clients, which are numbered."""

Order = Literal["times", "given"]
"""How the order in which trials were measured is known: all files name it, or their user gave them in that order."""


class ImportedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file: its name as it was given, the levels that its user gave it, and what else was said of it."""

    name: str
    levels: dict[str, str]
    options: dict[str, Any] = {}
    beside: list[str] = []  # names of files of the same folder, kept with it


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
    def nodes(self) -> dict[str, tuple[int, int]]:
        """Node → which part of which file is its. Which machine it was is not known."""
        places = [(self.file, self.part), *self.others]
        names = [f"client-{number}" for number in range(1, len(places) + 1)] if self.others else [NODE]
        return dict(zip(names, places, strict=True))


class Imported(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run was imported from. Trial n is ``trials[n - 1]``; the trials of a file follow each other.

    ``factors``: their levels in the order in which they are shown. ``turns``: how their order is known, where cells
    took turns, which is the word of who imported them; else empty. ``notes``: sentences on what else set-ups differ
    in, and on what are no repeats.
    """

    kind: str
    files: tuple[ImportedFile, ...]
    trials: Annotated[tuple[ImportedTrial, ...], Meta(min_length=1)]
    factors: dict[str, tuple[str, ...]]
    primary: str
    turns: Order | Literal[""] = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """All trials have a level of each factor, and are of one of the files."""
        for trial in self.trials:
            if trial.levels.keys() != self.factors.keys():
                raise ValueError("its trials have different factors")
            for file, _ in trial.nodes.values():
                if file >= len(self.files):
                    raise ValueError(f"there is no file {file}")

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
