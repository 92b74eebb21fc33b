"""Factors and their levels, as a study file writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storlab.base.limits import LABEL
from storlab.base.units import shown, size_text
from storlab.study.messages import unknown
from storlab.study.toml_text import Path

Report = Callable[[Path, str], None]

MAX_NUMBER = 10**30
_WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_NEITHER = "a factor is a table: levels = [ … ], or a name for each level"


@dataclass(frozen=True)
class Level:
    """One value of a factor. ``label`` names it in tables, ``origin`` is where it was written."""

    label: str
    value: Any
    origin: Path


@dataclass(frozen=True)
class Factor:
    """What varies, with its levels in the order in which they were written.

    ``chosen``: the labels of those that are run unless --only names others; ``None``: all.
    """

    name: str
    levels: tuple[Level, ...]
    chosen: tuple[str, ...] | None = None


def read_factors(
    raw: Mapping[str, Any], report: Report, parameters: Mapping[str, Any] | None = None, used: set[str] | None = None
) -> list[Factor]:
    """The study's factors with all their levels; problems go to ``report`` with their place.

    The levels of one may be a parameter's, ``levels = "{sizes}"``, so that a profile can have more of them; ``used``
    gathers the names of such parameters. Beside levels with names, such a list says which of them are run.
    """
    factors = []
    for name, written in raw.items():
        names, chosen = written, None
        if isinstance(written, dict) and "levels" in written and len(written) > 1:
            names = {label: value for label, value in written.items() if label != "levels"}
            written = {"levels": written["levels"]}
            chosen = _chosen(name, *_of_parameter(name, written, parameters or {}, used), names, report)
        tree, origin = _of_parameter(name, names, parameters or {}, used)
        levels = _levels(name, tree, report, origin)
        _refuse_twice(levels, report)
        for level in levels:
            if not is_label(level.label):
                named = f"give it a short name: [factors.{name}] and NAME = {shown(level.value)}"
                report(level.origin, f"{shown(level.value)} cannot be shown as a name in tables: {named}")
        if chosen is not None:  # in the order in which they are chosen
            levels.sort(key=lambda level: chosen.index(level.label) if level.label in chosen else len(chosen))
        if levels:
            factors.append(Factor(name, tuple(levels), chosen))
    return factors


def _chosen(
    name: str, tree: Mapping[str, Any], origin: Path | None, known: Mapping[str, Any], report: Report
) -> tuple[str, ...] | None:
    """The names of levels in ``levels``, which stands beside levels with names."""
    labels, at = tree["levels"], origin or ("factors", name, "levels")
    if not isinstance(labels, list) or not labels:
        report(at, "beside levels with names, levels is a list of the names that are run, or a parameter that is one")
        return None
    for index, label in enumerate(labels):
        if label not in known if isinstance(label, str) else True:
            report((*at, index), unknown(f"level {shown(label)} of {name}", str(label), known))
        elif label in labels[:index]:
            report((*at, index), f"the level {shown(label)} is listed twice")
    return tuple(map(str, labels))


def is_label(text: str) -> bool:
    """Whether people can read it in a table and write it on a command line."""
    return 0 < len(text) <= LABEL and text.isprintable() and text == text.strip()


def _of_parameter(
    name: str, tree: Any, parameters: Mapping[str, Any], used: set[str] | None
) -> tuple[Any, Path | None]:
    """A factor whose levels are a parameter, with these in their place, and where they were written."""
    levels = tree.get("levels") if isinstance(tree, dict) and len(tree) == 1 else None
    word = _WORD.fullmatch(levels) if isinstance(levels, str) else None
    if word is None or not isinstance(parameters.get(word[1]), list):
        return tree, None
    if used is not None:
        used.add(word[1])
    return {"levels": parameters[word[1]]}, ("parameters", word[1])


def _levels(name: str, tree: Any, report: Report, origin: Path | None = None) -> list[Level]:
    path: Path = ("factors", name)
    at = path
    if isinstance(tree, dict) and "levels" in tree:
        tree, at = tree["levels"], origin or (*path, "levels")
    if isinstance(tree, dict) and tree and at == path:
        return [Level(label, value, (*path, label)) for label, value in tree.items()]
    if not isinstance(tree, list) or not tree:
        message = "levels must be a list of one or more values, or a parameter that is one" if at != path else _NEITHER
        report(at, message)
        return []
    levels = []
    for index, value in enumerate(tree):
        if isinstance(value, dict | list):
            report((*at, index), f"a level that is a table or a list needs a name: [factors.{name}] and NAME = …")
        else:
            levels.append(Level(label_of(value), value, (*at, index)))
    return levels


def label_of(value: Any) -> str:
    """The name of a level that is a plain value, as it is written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= MAX_NUMBER:
        return "?" * (LABEL + 1)  # no label: Python refuses to print numbers of thousands of digits
    return str(value)


def _is_size(level: Level) -> bool:
    """Whether it is a number of bytes, as far as anybody knows, which may be listed as ``4k`` as well."""
    return type(level.value) is int and 0 < level.value < MAX_NUMBER and level.label == str(level.value)


def _refuse_twice(levels: Sequence[Level], report: Report) -> None:
    labels: set[str] = set()
    values: dict[tuple[type, Any], str] = {}
    for level in levels:
        # Two names for the same table or stack are an A/A comparison, which is a sound thing to ask for.
        value = None if isinstance(level.value, dict | list) else (type(level.value), level.value)
        size = size_text(level.value) if _is_size(level) else level.label
        if level.label in labels or size in labels:
            report(level.origin, f"the level {shown(level.label)} is listed twice")
        elif value is not None and value in values:
            report(level.origin, f"the level {shown(level.label)} is the same as {shown(values[value])}")
        labels |= {level.label, size}
        if value is not None:
            values.setdefault(value, level.label)
