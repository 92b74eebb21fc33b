"""Trials that ran at once: those of several clients, each with a file of its own, as one; and else, which these are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from storlab.base.errors import UserError
from storlab.base.text import grouped
from storlab.tools.importer import HOST, ImportedFile, Part

T = TypeVar("T")
Place = tuple[int, int]
"""A part, by its file and its number there, both from 0."""

_ROUNDED = timedelta(milliseconds=10)
_WHOLE = timedelta(seconds=1)
_TOGETHER = 0.9  # of the time from the first start to the last end: less is worth a note
_NAMED = 5


@dataclass(frozen=True)
class Trial:
    """What the clients of one trial did: the places of their parts, and one part that stands for all of these."""

    places: tuple[Place, ...]
    names: str
    part: Part


def trials_of_clients(files: Sequence[ImportedFile], read: Sequence[Sequence[Part]]) -> list[Trial]:
    """The trials of files of which each is one client's, in the order of the files.

    Files with the same levels are those of one trial where they ran at once or, without times, where any are. The
    first trials of each of these are one, then the second ones, and so on. Of files that name their node, those of
    all nodes with the same levels are. Raises ``UserError`` where no two files ran at once, or a client's is missing.
    """
    alike = grouped((tuple(file.levels.items()), number) for number, file in enumerate(files)).values()
    if files[0].node:
        groups = [group for numbers in alike for group in _one_of_each_node(numbers, files)]
    else:
        groups = [group for numbers in alike for group in _of_equal_size(_groups(numbers, read), files)]
    if not files[0].node and all(len(group) == 1 for group in groups):
        raise UserError(
            f"--clients: no two of these files ran at once, such as {files[0].name}: give each client's output as a "
            "file of its own, or leave --clients out"
        )
    trials = [trial for group in groups for trial in _trials(group, files, read)]
    return sorted(trials, key=lambda trial: trial.places[0])


def _one_of_each_node(numbers: Sequence[int], files: Sequence[ImportedFile]) -> list[list[int]]:
    every = grouped((files[number].node, number) for number in numbers)
    most = max(map(len, every.values()))
    for node, own in every.items():
        if len(own) < most and node != HOST:
            raise UserError(f"--nodes: node {node} has {len(own)} files for {most} trials: {_names(files, own)}")
    return [[own[at] for own in every.values() if at < len(own)] for at in range(most)]


def _groups(numbers: Sequence[int], read: Sequence[Sequence[Part]]) -> list[list[int]]:
    spans = [(span, number) for number in numbers if (span := _span(read[number])) is not None]
    if len(spans) < len(numbers):
        return [list(numbers)]
    return [sorted(group) for group in overlapping(spans)]


def _span(parts: Iterable[Part]) -> tuple[datetime, datetime] | None:
    spans = [(part.started, end_of(part)) for part in parts]
    known = [(start, end) for start, end in spans if start is not None and end is not None]
    if len(known) < len(spans):
        return None
    return min(start for start, _ in known), max(end for _, end in known)


def end_of(part: Part) -> datetime | None:
    return None if part.started is None else part.started + timedelta(seconds=part.lasted or 0.0)


def is_within(time: datetime, end: datetime) -> bool:
    """Whether it is before that end for certain: some files name times to the second only."""
    return time < end - (_ROUNDED if end.microsecond else _WHOLE)


def overlapping(spans: Iterable[tuple[tuple[datetime, datetime], T]]) -> list[list[T]]:
    groups: list[list[T]] = []
    until: datetime | None = None
    for (start, end), each in sorted(spans, key=lambda span: span[0]):
        if until is not None and is_within(start, until):
            groups[-1].append(each)
            until = max(until, end)
        else:
            groups.append([each])
            until = end
    return groups


def _of_equal_size(groups: list[list[int]], files: Sequence[ImportedFile]) -> list[list[int]]:
    most, least = max(groups, key=len), min(groups, key=len)
    if len(most) != len(least):
        raise UserError(
            f"--clients: {_names(files, least)} ran at once, and so did {_names(files, most)}: a client's file is "
            "missing, or the number of clients differs: say so by --factor"
            if len(least) > 1
            else f"--clients: {_names(files, least)} ran at another time than {_names(files, most)}: leave it out, or "
            "tell it apart by --factor"
        )
    return groups


def _names(files: Sequence[ImportedFile], numbers: Sequence[int]) -> str:
    return named([files[number].name for number in numbers])


def named(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} others"
    return " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def _trials(group: Sequence[int], files: Sequence[ImportedFile], read: Sequence[Sequence[Part]]) -> Iterable[Trial]:
    names = _names(files, group)
    numbers = {len(read[file]) for file in group}
    if len(numbers) > 1:
        each = ", ".join(f"{files[file].name}: {len(read[file])}" for file in group[:_NAMED])
        raise UserError(f"{names} are of one trial each, and hold different numbers of them ({each})")
    for number in range(numbers.pop()):
        said = names if len(read[group[0]]) == 1 else f"trial {number + 1} of {names}"
        parts = {files[file].name: read[file][number] for file in group}
        yield Trial(tuple((file, number) for file in group), said, _joined(_of_loads(parts, group, files), said))


def _of_loads(parts: Mapping[str, Part], group: Sequence[int], files: Sequence[ImportedFile]) -> Mapping[str, Part]:
    for file, (name, part) in zip(group, parts.items(), strict=True):
        if bool(part.source) != (files[file].node == HOST):
            held, of = ("load averages", "its host") if part.source else ("results of a load", "a node")
            raise UserError(f"{name} holds {held}, which are of {of}: call its file or folder so, or leave it out")
    return {name: part for name, part in parts.items() if not part.source}


def _joined(parts: Mapping[str, Part], said: str) -> Part:
    """Their traits joined as those of jobs that ran at once. Raises ``UserError`` where there was no common moment."""
    each = list(parts.values())
    if any(part.levels != each[0].levels for part in each):
        raise UserError(f"{said} are of one trial, and of different set-ups by what they say themselves")
    common = _common(each)
    if common is not None and common <= timedelta(0):
        raise UserError(f"{said} are of one trial, and did not run at the same time: leave out those of another")
    names = dict.fromkeys(name for part in each for name in part.traits)
    traits = {name: " + ".join(dict.fromkeys(part.traits.get(name, "–") for part in each)) for name in names}
    return replace(as_one(parts), traits=traits)


def as_one(parts: Mapping[str, Part]) -> Part:
    each = list(parts.values())
    if len(each) == 1:
        return each[0]
    whole = _span(each)
    failed = {name: part for name, part in parts.items() if part.status != "done"}
    first = next((part for part in each if part.status == "done"), each[0])
    return replace(
        first,
        round=None,
        started=None if whole is None else whole[0],
        lasted=None if whole is None else (whole[1] - whole[0]).total_seconds(),
        status=next(iter(failed.values()), first).status,
        reason="; ".join(f"{name}: {part.reason}" for name, part in failed.items()) or None,
    )


def _common(parts: Sequence[Part]) -> timedelta | None:
    starts, ends = [part.started for part in parts], [end_of(part) for part in parts]
    known = [each for each in (*starts, *ends) if each is not None]
    if len(known) < 2 * len(parts):
        return None
    return min(known[len(parts) :]) - max(known[: len(parts)])


def notes_on(trials: Sequence[Trial], read: Sequence[Sequence[Part]]) -> list[str]:
    sizes = sorted({sum(not read[file][part].source for file, part in trial.places) for trial in trials})
    said = " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    found = [f"Each trial is what {said} clients did at once: their rates and counts are added up."]
    for trial in trials:
        common, whole = _common([read[file][part] for file, part in trial.places]), trial.part.lasted
        if common is not None and whole and common.total_seconds() < _TOGETHER * whole:
            times = f"{common.total_seconds():.1f} s of {whole:.1f} s"
            found.append(f"{trial.names} ran at once for {times} only: their rates, added up, are of no one moment.")
    return found
