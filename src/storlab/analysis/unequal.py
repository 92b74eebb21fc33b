"""What was declared alike and was not: a difference that nobody declared may be taken for the one that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from storlab.base.text import grouped

KERNEL = "kernel"
"""The thing whose settings are of no layer."""

Among = Literal["nodes", "trials", "levels", "runs"]


@dataclass(frozen=True)
class Held:
    """One value of a setting that is not the same everywhere, and where it was so."""

    value: str
    nodes: tuple[str, ...]
    trials: tuple[int, ...]
    cells: tuple[int, ...]


@dataclass(frozen=True)
class Unequal:
    """A setting of what was declared alike, and was not: among nodes in one trial, among trials of one cell, among
    levels that the study says nothing different of, or among runs that are compared, whose names are then ``nodes``.
    """

    among: Among
    thing: str  # a layer's kind, or "kernel"
    setting: str
    held: tuple[Held, ...]  # the commonest first


class Place(NamedTuple):
    """Where a setting was seen. ``node``: with the chain, where that is not the node's own stack."""

    cell: int
    trial: int
    node: str


@dataclass
class Seen:
    """The settings of all that was set up, as the measured phases began: what is declared, what has it, its name."""

    values: dict[tuple[str, str, str], dict[str, list[Place]]] = field(default_factory=dict)

    def add(self, declared: str, thing: str, settings: Iterable[tuple[str, str]], place: Place) -> None:
        """``declared`` is the same for all that the study declares alike; ``thing``: what has the settings."""
        for setting, value in settings:
            self.values.setdefault((declared, thing, setting), {}).setdefault(value, []).append(place)

    def same(self, counts: Callable[[str, str], bool]) -> dict[int, dict[str, str]]:
        """Cell → "read_ahead_kb of loop" → "128": what was the same in all trials of a cell, of several layers of one
        name all values. ``counts``: whether a thing and its setting do.
        """
        found: dict[int, dict[str, dict[int, set[str]]]] = {}
        for (_, thing, setting), values in self.values.items():
            name = setting if thing == KERNEL else f"{setting.rpartition('.')[2]} of {thing}"
            rows = ((place, value) for value, places in values.items() for place in places)
            for place, value in rows if counts(thing, setting) else ():
                found.setdefault(place.cell, {}).setdefault(name, {}).setdefault(place.trial, set()).add(value)
        trials = {cell: set().union(*names.values()) for cell, names in found.items()}
        known: dict[int, dict[str, str]] = {}
        for cell, names in found.items():
            known[cell] = {}
            for name, of in names.items():
                first = of[min(of)]
                if of.keys() == trials[cell] and all(values == first for values in of.values()):
                    known[cell][name] = ", ".join(sorted(first))
        return known

    def unequal(self) -> tuple[Unequal, ...]:
        """The settings that differ where the study declares no difference: each once, in the order of settings."""
        found: dict[tuple[object, ...], Unequal] = {}
        for (_, thing, setting), values in self.values.items():
            if len(values) > 1:
                one = Unequal(_among(values), thing, setting, _held(values))
                found.setdefault((one.thing, one.setting, one.held), one)
        return tuple(found.values())


def among_runs(runs: Mapping[str, Seen]) -> tuple[Unequal, ...]:
    """The settings that are the same all over each run, and not the same in all runs."""
    found: dict[tuple[str, str, str], dict[str, list[Place]]] = {}
    for name, seen in runs.items():
        for key, values in seen.values.items():
            for value in values if len(values) == 1 else ():
                found.setdefault(key, {}).setdefault(value, []).append(Place(0, 0, name))
    differing = ((key, values) for key, values in found.items() if len(values) > 1)
    return tuple(Unequal("runs", thing, setting, _held(values)) for (_, thing, setting), values in differing)


def _among(values: Mapping[str, list[Place]]) -> Among:
    """Within what it differs: the least, for that explains the rest."""
    rows = [(place, value) for value, places in values.items() for place in places]
    if _differs(((place.cell, place.trial), value) for place, value in rows):
        return "nodes"
    return "trials" if _differs((place.cell, value) for place, value in rows) else "levels"


def _differs(pairs: Iterable[tuple[object, str]]) -> bool:
    return any(len(set(values)) > 1 for values in grouped(pairs).values())


def _held(values: Mapping[str, list[Place]]) -> tuple[Held, ...]:
    def held(value: str, places: list[Place]) -> Held:
        cells, trials, nodes = ({each[at] for each in places} for at in range(3))
        return Held(
            value, tuple(sorted(map(str, nodes))), tuple(sorted(map(int, trials))), tuple(sorted(map(int, cells)))
        )

    return tuple(held(*each) for each in sorted(values.items(), key=lambda each: (-len(each[1]), each[0])))
