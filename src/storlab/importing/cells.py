"""The cells and rounds of files that are imported, from what each was read as and from what their user says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storlab.errors import UserError
from storlab.importing.imported import Imported, ImportedFile, ImportedTrial
from storlab.importing.importer import Importer, Part
from storlab.importing.registry import importer_of
from storlab.importing.rounds import Measured, at_once, rounds_in_turns, rounds_of_cell

NOT_SAID = "–"
"""The level of a factor that another file or part names, and this one doesn't."""

Levels = Mapping[tuple[int, int], dict[str, str]]
"""Of each part, by its file and its number there, both from 0."""


def assemble(
    kind: str, files: Sequence[ImportedFile], read: Sequence[Sequence[Part]], interleaved: bool = False
) -> Imported:
    """The cells and rounds of all that ``files`` hold; ``read`` is what each was read as.

    Parts with the same levels are rounds of one cell: those that they name, or one after the other. ``interleaved``:
    rounds are those of all cells, which took turns. Then, and where files are told apart by their names, traits that
    follow from what is said of files are no factors, or no two cells would differ in one factor alone. Raises
    ``UserError`` where the user's factors and those of the files have a name in common, a round comes twice, or files
    contradict that cells took turns.
    """
    importer, differing = importer_of(kind), _differing(read)
    by_name = not (importer.repeats or any(part.levels for parts in read for part in parts))
    followed = _followed(files, read, differing) if interleaved or by_name else {}
    levels = _levels(files, read, [name for name in differing if name not in followed])
    factors = _factors(list(levels.values()), importer.published)
    cells = _numbered(levels, factors, ordered=bool(importer.published))
    primary = primary_of(importer, read)
    measured = [
        Measured(_place(files[file], part, len(read[file])), _in_words(each), cells[file, part], read[file][part])
        for (file, part), each in levels.items()
    ]
    if not interleaved:
        rounds = _rounds(files, read, levels, cells)
        trials = tuple(ImportedTrial(*at, cells[at], rounds[at], levels[at]) for at in levels)
        return Imported(kind, tuple(files), trials, factors, primary, notes=_no_repeats(measured))
    found = rounds_in_turns(measured)
    each = zip(levels, found.rounds, found.turns, strict=True)
    trials = tuple(ImportedTrial(*at, cells[at], number, levels[at], turn) for at, number, turn in each)
    notes = tuple(f"Set-ups differ in {name} as well ({told})." for name, told in followed.items())
    return Imported(kind, tuple(files), trials, factors, primary, found.order, notes)


def _factors(levels: Sequence[Mapping[str, str]], published: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Factor → its levels, in the order of the files; or as the tool publishes them, and others after these."""
    factors = {}
    for name in levels[0]:
        found = dict.fromkeys(each[name] for each in levels)
        known = [level for level in published.get(name, ()) if level in found]
        factors[name] = tuple(dict.fromkeys([*known, *found]))
    return factors


def _numbered(levels: Levels, factors: Mapping[str, Sequence[str]], *, ordered: bool) -> dict[tuple[int, int], int]:
    """Of each part its cell, from 1: in the order of the files, or where ``ordered`` in that of the factors' levels."""
    distinct = dict.fromkeys(tuple(each.values()) for each in levels.values())
    if ordered:
        ranks = [{level: at for at, level in enumerate(known)} for known in factors.values()]
        distinct = dict.fromkeys(
            sorted(distinct, key=lambda each: [rank[level] for rank, level in zip(ranks, each, strict=True)])
        )
    numbers = {names: cell for cell, names in enumerate(distinct, start=1)}
    return {at: numbers[tuple(each.values())] for at, each in levels.items()}


def primary_of(importer: Importer, read: Sequence[Sequence[Part]]) -> str:
    """The metric that a report of these parts begins with."""
    metrics = [part.measured.metrics["metric"] for parts in read for part in parts if part.measured.metrics.height]
    found = next((name for name in importer.primary if any(name in each for each in metrics)), None)
    return found or (str(metrics[0][0]) if metrics else next(iter(importer.primary), ""))


def _no_repeats(trials: Sequence[Measured]) -> tuple[str, ...]:
    found = at_once(trials)
    if found is None:
        return ()
    return (
        f"{found[0].where} and {found[1].where} ran at once, as clients do, and are no repeats: tell them apart by "
        "--factor; what they did is not added up.",
    )


def _levels(files: Sequence[ImportedFile], read: Sequence[Sequence[Part]], differing: Sequence[str]) -> Levels:
    """Those that their user gave, those that files name, and the traits in which they differ."""
    given = dict.fromkeys(name for file in files for name in file.levels)
    own = dict.fromkeys(name for parts in read for part in parts for name in part.levels)
    both = [name for name in own if name in given]
    if both:
        raise UserError(f"{both[0]} is a factor that the files themselves name: choose another name for it")
    differing = [name for name in differing if name not in given and name not in own]
    levels = {}
    for file, parts in enumerate(read):
        for number, part in enumerate(parts):
            named = {**files[file].levels, **{name: part.levels.get(name, NOT_SAID) for name in own}}
            levels[file, number] = named | {name: part.traits.get(name, NOT_SAID) for name in differing}
    return levels


def _differing(read: Sequence[Sequence[Part]]) -> list[str]:
    """The traits in which parts differ, one that is only said of some among them."""
    everything = [part.traits for parts in read for part in parts]
    names = dict.fromkeys(name for traits in everything for name in traits)
    return [name for name in names if len({traits.get(name) for traits in everything}) > 1]


def _followed(
    files: Sequence[ImportedFile], read: Sequence[Sequence[Part]], differing: Sequence[str]
) -> dict[str, str]:
    """Traits that are the same wherever a file's user said the same; and what they are, in words."""
    found = {}
    for name in differing:
        values: dict[str, dict[str, None]] = {}
        for file, parts in zip(files, read, strict=True):
            for part in parts:
                values.setdefault(_in_words(file.levels), {})[part.traits.get(name, NOT_SAID)] = None
        if len(values) > 1 and all(len(each) == 1 for each in values.values()):
            found[name] = "; ".join(f"{said}: {next(iter(each))}" for said, each in values.items())
    return found


def _rounds(
    files: Sequence[ImportedFile], read: Sequence[Sequence[Part]], levels: Levels, cells: Mapping[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Of each part its round, which each cell counts for itself."""
    members: dict[int, list[tuple[int, int]]] = {}
    for at, cell in cells.items():
        members.setdefault(cell, []).append(at)
    places: dict[tuple[int, int], int] = {}
    for own in members.values():
        rounds = rounds_of_cell([read[file][part] for file, part in own])
        for member, number in zip(own, rounds, strict=True):
            if rounds.count(number) > 1:
                said = _in_words(levels[member])
                raise UserError(f"{files[member[0]].name}: round {number} of {said} comes twice")
            places[member] = number
    return places


def _place(file: ImportedFile, part: int, parts: int) -> str:
    return file.name if parts == 1 else f"{file.name}, trial {part + 1}"


def _in_words(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {level}" for name, level in levels.items())
