"""The cells and rounds of files that are imported, from what each was read as and from what their user says of them.

That cells took turns is their user's word. It is held against the times that files name, and their numbers of rounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from storlab.base.amounts import parse_duration, parse_size
from storlab.base.errors import UserError
from storlab.base.text import first, grouped
from storlab.tools.clients import Place, end_of, is_within, named, notes_on, overlapping, trials_of_clients
from storlab.tools.importer import HEADING, Imported, ImportedFile, ImportedTrial, Importer, Order, Part, importer_of

_BETWEEN = re.compile(r"[\s_/-]+")
_SWITCHES = ({"1", "yes", "on", "true", "enabled"}, {"0", "no", "off", "false", "disabled"})
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


def refuse_contradictions(files: Sequence[ImportedFile], read: Sequence[Sequence[Part]]) -> None:
    """Raise ``UserError`` where a factor has the name of a setting that a file gives another value; ``read`` is what
    each file was read as.
    """
    for file, parts in zip(files, read, strict=True):
        given = {plain_name(name): (name, level) for name, level in file.levels.items()}
        for number, part in enumerate(parts, start=1):
            for trait, value in part.traits.items():
                name, level = given.get(plain_name(trait), ("", value))
                if not _same(level, value):
                    of = f"trial {number} of {file.name}" if len(parts) > 1 else file.name
                    raise UserError(
                        f"--factor {name}: {of} itself says {trait} = {value}, and not {level}. Leave the option out, "
                        "as settings in which files differ become factors by themselves; or choose another name if "
                        "something else is meant"
                    )


def plain_name(name: str) -> str:
    """By which ``block size`` and ``block_size`` are the same."""
    return _BETWEEN.sub("", name).casefold()


def _same(one: str, other: str) -> bool:
    """Whether two ways to write a setting mean the same, such as ``4k`` and ``4096``, ``15m`` and ``900 s``."""
    one, other = one.strip().casefold(), other.strip().casefold()
    return one == other or any({one, other} <= words for words in _SWITCHES) or bool(_numbers(one) & _numbers(other))


def _numbers(text: str) -> set[float]:
    found = {float(text)} if _NUMBER.fullmatch(text) else set[float]()
    for parse in (parse_size, parse_duration):
        with suppress(ValueError):
            found.add(float(parse(text)))
    return found


_LONGEST = 63
_SHOWN = 3
INSTEAD = "Without --interleaved they are described, and not judged"


@dataclass(frozen=True)
class Measured:
    """One trial, with its file and its levels as messages name them."""

    where: str
    levels: str
    cell: int
    part: Part


def rounds_in_turns(trials: Sequence[Measured]) -> tuple[list[int], list[int], Order]:
    """Rounds and turns of ``trials``, as given, both from 1, and how their order is known: of cells that took turns.

    In each round every cell has one trial; the last may lack some. Raises ``UserError`` where files contradict that.
    """
    cells = list(dict.fromkeys(trial.cell for trial in trials))
    _require_repeats(trials, len(cells))
    times = [trial.part.started for trial in trials if trial.part.started is not None]
    order: Order = "times" if len(times) == len(trials) else "given"
    measured = sorted(range(len(trials)), key=times.__getitem__) if order == "times" else list(range(len(trials)))
    ordered = [trials[at] for at in measured]
    _require_times(ordered)
    _require_turns(ordered, len(cells), order)
    _require_numbers(ordered, len(cells))
    turns = [turn for _, turn in sorted(zip(measured, range(1, len(trials) + 1), strict=True))]
    return [(turn - 1) // len(cells) + 1 for turn in turns], turns, order


def _require_repeats(trials: Sequence[Measured], cells: int) -> None:
    if cells == 1:
        raise UserError(
            f"--interleaved: there is one set-up only ({trials[0].levels}), which can't take turns: tell set-ups apart "
            "by --factor or --label"
        )
    if len(trials) == cells:
        raise UserError(
            f"--interleaved: each of the {cells} set-ups has one trial only, {trials[0].levels} that of "
            f"{trials[0].where}: say by --factor or --label which files are of the same set-up"
        )


def _require_times(ordered: Sequence[Measured]) -> None:
    timed = [(trial, trial.part.started) for trial in ordered if trial.part.started is not None]
    for (one, began), (other, later) in pairwise(timed):
        if later < began:
            raise UserError(
                f"--interleaved: {other.where} is given after {one.where} and was measured before it "
                f"({_clock(later)}; {_clock(began)}). Not all files name their times: give them in the order in which "
                "they were measured"
            )
        end = end_of(one.part)
        if end is not None and is_within(later, end):
            raise UserError(
                f"--interleaved: {other.where} began at {_clock(later)}, before {one.where} had ended, which began at "
                f"{_clock(began)} and took {one.part.lasted:.1f} s: they ran at once and took no turns. {INSTEAD}"
            )


def at_once(trials: Sequence[Measured]) -> list[list[int]]:
    """The trials, by their numbers from 0, of one cell that ran at once, as far as files name their times."""
    timed = [
        (trial.cell, ((trial.part.started, end), at))
        for at, trial in enumerate(trials)
        if trial.part.started is not None and (end := end_of(trial.part)) is not None
    ]
    return [group for spans in grouped(timed).values() for group in overlapping(spans) if len(group) > 1]


def _require_turns(ordered: Sequence[Measured], cells: int, order: Order) -> None:
    by = "by the times in the files" if order == "times" else "in the order given"
    levels = {trial.cell: trial.levels for trial in ordered}
    for begin in range(0, len(ordered), cells):
        seen: dict[int, Measured] = {}
        for trial in ordered[begin : begin + cells]:
            if trial.cell in seen:
                missing = next(words for cell, words in levels.items() if cell not in seen)
                raise UserError(
                    f"--interleaved: {by}, {trial.levels} comes again ({trial.where}, after {seen[trial.cell].where}) "
                    f"before {missing} had its turn: these took no turns, or a trial is missing. {INSTEAD}"
                )
            seen[trial.cell] = trial


def _require_numbers(ordered: Sequence[Measured], cells: int) -> None:
    turn_of: dict[int, int] = {}
    number_of: dict[int, int] = {}
    for at, trial in enumerate(ordered):
        turn, number = at // cells + 1, trial.part.round
        if number is None:
            continue
        if turn_of.setdefault(number, turn) != turn or number_of.setdefault(turn, number) != number:
            raise UserError(
                f"--interleaved: {trial.where} ({trial.levels}) is of round {number} by its own number, and of another "
                f"than the rest of that round by the order in which trials took turns. {INSTEAD}"
            )


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


NOT_SAID = "–"
"""The level of a factor that another file or part names, and this one doesn't."""

_APART = ("client", "file", "part")
"""Names of the factor that tells trials apart that ran at once: the first that is none already."""

Levels = Mapping[Place, dict[str, str]]
Parts = Mapping[Place, Part]


def assemble(
    kind: str,
    files: Sequence[ImportedFile],
    read: Sequence[Sequence[Part]],
    interleaved: bool = False,
    clients: bool = False,
) -> Imported:
    """The cells and rounds of all that ``files`` hold; ``read`` is what each was read as.

    ``clients``: files that ran at once are one trial. Otherwise they are set-ups of their own, as they are no repeats.
    """
    if not clients:
        return _assembled(kind, files, read, interleaved)
    trials = trials_of_clients(files, read)
    told = [msgspec.structs.replace(files[trial.places[0][0]], name=trial.names) for trial in trials]
    found = _assembled(kind, told, [[trial.part] for trial in trials], interleaved)
    places = [trials[each.file].places for each in found.trials]
    own = [
        ImportedTrial(*first, each.cell, each.round, each.levels, each.turn, list(others))
        for each, (first, *others) in zip(found.trials, places, strict=True)
    ]
    notes = (*notes_on(trials, read), *found.notes)
    return Imported(kind, tuple(files), tuple(own), found.factors, found.primary, found.turns, notes)


def _assembled(kind: str, files: Sequence[ImportedFile], read: Sequence[Sequence[Part]], interleaved: bool) -> Imported:
    """The same, where each part is a trial.

    Parts with the same levels are rounds of one cell: those that they name, or one after the other. ``interleaved``:
    rounds are those of all cells, which took turns. Then, and where files are told apart by their names, traits that
    follow from what is said of files are no factors, or no two cells would differ in one factor alone. Raises
    ``UserError`` where the user's factors and those of the files have a name in common, files contradict what is said
    of them, a round comes twice, or files contradict that cells took turns.
    """
    refuse_contradictions(files, read)
    parts = {(file, at): part for file, each in enumerate(read) for at, part in enumerate(each)}
    importer, differing = importer_of(kind), _differing([part.traits for part in parts.values()])
    by_name = not (importer.repeats or any(part.levels for part in parts.values()))
    followed = _followed(files, parts, differing) if interleaved or by_name else {}
    levels = _levels(files, parts, [name for name in differing if name not in followed])
    factors, cells, measured = _design(importer, files, parts, levels)
    notes = [f"Set-ups differ in {name} as well ({first(told, '; ')})." for name, told in followed.items()]
    said, primary = importer.notes(list(parts.values())), primary_of(importer, read)
    if interleaved:
        numbers, turns, order = rounds_in_turns(measured)
        each = zip(levels, numbers, turns, strict=True)
        trials = tuple(ImportedTrial(*at, cells[at], number, levels[at], turn) for at, number, turn in each)
        return Imported(kind, tuple(files), trials, factors, primary, order, notes=(*_unlike(measured), *notes, *said))
    notes = [*_unlike(measured), *notes]
    if groups := at_once(measured):
        levels = _told_apart(files, levels, groups)
        notes.append(_no_repeats(measured, groups, importer))
        factors, cells, _ = _design(importer, files, parts, levels)
    rounds = _rounds(files, parts, levels, cells)
    trials = tuple(ImportedTrial(*at, cells[at], rounds[at], levels[at]) for at in levels)
    return Imported(kind, tuple(files), trials, factors, primary, notes=(*notes, *said))


def _design(
    importer: Importer, files: Sequence[ImportedFile], parts: Parts, levels: Levels
) -> tuple[dict[str, tuple[str, ...]], dict[Place, int], list[Measured]]:
    """Factors and cells in the order of the files; or as the tool publishes them, and others after these."""
    factors = {}
    for name in next(iter(levels.values())):
        found = dict.fromkeys(each[name] for each in levels.values())
        known = [level for level in importer.published.get(name, ()) if level in found]
        factors[name] = tuple(dict.fromkeys([*known, *found]))
    distinct = list(dict.fromkeys(tuple(each.values()) for each in levels.values()))
    if importer.published:
        distinct.sort(key=lambda each: [of.index(level) for of, level in zip(factors.values(), each, strict=True)])
    numbers = {names: cell for cell, names in enumerate(distinct, start=1)}
    cells = {at: numbers[tuple(each.values())] for at, each in levels.items()}
    several = {file for file, part in parts if part}
    measured = [
        Measured(
            f"{files[file].name}, trial {part + 1}" if file in several else files[file].name,
            _in_words(each),
            cells[file, part],
            parts[file, part],
        )
        for (file, part), each in levels.items()
    ]
    return factors, cells, measured


def _told_apart(files: Sequence[ImportedFile], levels: Levels, groups: Sequence[Sequence[int]]) -> Levels:
    """With a further factor, of which each trial of ``groups`` has a level of its own, and all others the same."""
    name = next((name for name in _APART if not any(name in each for each in levels.values())), "")
    if not name:
        raise UserError(f"--factor: {', '.join(_APART)}: one of these names is for files that ran at once")
    places = list(levels)
    apart = [places[at] for group in groups for at in group]
    stems = {file: Path(files[file].name).stem for file, _ in apart}
    alike = len(set(stems.values())) < len(stems)
    several = {file for file, part in apart if part}
    own = {
        (file, part): (files[file].name if alike else stems[file]) + (f" {part + 1}" if file in several else "")
        for file, part in apart
    }
    return {place: {**each, name: own.get(place, NOT_SAID)[-_LONGEST:]} for place, each in levels.items()}


def primary_of(importer: Importer, read: Sequence[Sequence[Part]]) -> str:
    metrics = [part.metrics for parts in read for part in parts if len(part.metrics)]
    found = next((name for name in importer.primary if any(name in each for each in metrics)), None)
    return found or (str(metrics[0][0]) if metrics else next(iter(importer.primary), ""))


def _no_repeats(trials: Sequence[Measured], groups: Sequence[Sequence[int]], importer: Importer) -> str:
    which = "; ".join(named([trials[at].where for at in group]) for group in groups[:_SHOWN])
    more = f"; {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else ""
    also = "; with --clients they are one trial, and added up." if importer.clients else "."
    return f"Ran at once, as clients do, and are no repeats: {which}{more}. Each is shown by itself{also}"


def _unlike(trials: Sequence[Measured]) -> Iterator[str]:
    said = ((trial.levels, fact) for trial in trials for fact in trial.part.found.facts.items())
    of_cell = grouped((levels, fact) for levels, fact in said if fact[0] == HEADING or fact[0].endswith("version"))
    for levels, facts in of_cell.items():
        for name, values in grouped((name, str(value)) for name, value in facts).items():
            if len(each := list(dict.fromkeys(values))) > 1:
                yield (
                    f"Rounds of {levels or 'the only set-up'} differ in their {name} ({first(each)}): if these are "
                    "set-ups of their own, import each from a file of its own."
                )


def _levels(files: Sequence[ImportedFile], parts: Parts, differing: Sequence[str]) -> Levels:
    given = dict.fromkeys(name for file in files for name in file.levels)
    own = dict.fromkeys(name for part in parts.values() for name in part.levels)
    if both := [name for name in own if name in given]:
        raise UserError(f"{both[0]} is a factor that the files themselves name: choose another name for it")
    said = {plain_name(name) for name in given}
    differing = [name for name in differing if plain_name(name) not in said and name not in own]
    return {
        at: {
            **files[at[0]].levels,
            **{name: part.levels.get(name, NOT_SAID) for name in own},
            **{name: part.traits.get(name, NOT_SAID) for name in differing},
        }
        for at, part in parts.items()
    }


def _differing(traits: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for each in traits for name in each)
    return [name for name in names if len({each.get(name) for each in traits}) > 1]


def _followed(files: Sequence[ImportedFile], parts: Parts, differing: Sequence[str]) -> dict[str, list[str]]:
    """Traits that are the same wherever a file's user said the same; and what they are, in words."""
    found = {}
    for name in differing:
        values: dict[str, dict[str, None]] = {}
        for (file, _), part in parts.items():
            values.setdefault(_in_words(files[file].levels), {})[part.traits.get(name, NOT_SAID)] = None
        if len(values) > 1 and all(len(each) == 1 for each in values.values()):
            found[name] = [f"{said}: {next(iter(each))}" for said, each in values.items()]
    return found


def _rounds(
    files: Sequence[ImportedFile], parts: Parts, levels: Levels, cells: Mapping[Place, int]
) -> dict[Place, int]:
    """The rounds of each cell: as its parts say, else in the order of their times, else in theirs."""
    places: dict[Place, int] = {}
    for own in grouped((cell, at) for at, cell in cells.items()).values():
        times = {at: started for at in own if (started := parts[at].started) is not None}
        if len(times) == len(own) and all(parts[at].round is None for at in own):
            places |= {at: number for number, at in enumerate(sorted(own, key=times.__getitem__), start=1)}
            continue
        rounds: list[int] = []
        for at in own:
            number = parts[at].round
            rounds.append(max(rounds, default=0) + 1 if number is None else number)
        for at, number in zip(own, rounds, strict=True):
            if rounds.count(number) > 1:
                raise UserError(f"{files[at[0]].name}: round {number} of {_in_words(levels[at])} comes twice")
            places[at] = number
    return places


def _in_words(levels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {level}" for name, level in levels.items())
