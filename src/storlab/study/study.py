"""A study: loaded, checked and expanded to cells, or refused with every problem that was found."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from storlab.errors import Problem, StudyError, UserError
from storlab.levels import is_sweep, names_load
from storlab.limits import CELLS, FACTORS
from storlab.metrics import MetricSpec
from storlab.study.cells import Cell
from storlab.study.cloning import check_cloning
from storlab.study.devices import check_devices
from storlab.study.factors import Factor, read_factors
from storlab.study.inputs import read_bounded, read_input
from storlab.study.machines import LAB
from storlab.study.messages import explain, nearest, unknown
from storlab.study.native import change_kinds, check_alike, kinds_of, native_notes
from storlab.study.networks import check_networks, network_notes
from storlab.study.overrides import apply_only, apply_override, apply_profile
from storlab.study.questions import Compare, check_claims, check_objectives
from storlab.study.read_cells import Report, Source, expand
from storlab.study.schema import StudyFile
from storlab.study.substitution import Outgrown
from storlab.study.toml_text import Path as TreePath
from storlab.study.toml_text import as_written, line_of, positions, read_toml
from storlab.text import printable
from storlab.units import shown
from storlab.workloads.base import PLACE_WORDS, ReadInput


@dataclass(frozen=True)
class Study:
    """A study that can be run. ``text`` is the file as it stood, ``overrides`` what --set changed.

    ``inputs`` are the contents of the files that it names, such as fio job files. ``notes`` are for its reader.
    ``sweeps``: the factors whose levels are numbers, those that --only leaves out among them; first those that say how
    much is asked of storage at once, of which there are ``loading``.
    """

    file: str
    text: str
    model: StudyFile
    factors: tuple[Factor, ...]
    cells: tuple[Cell, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    loading: int = 0

    def compared_factor(self, compare: Compare) -> str | None:
        """The factor whose levels it compares: the one that it names, or else the first that is no sweep.

        Of a study with nothing but sweeps, the first factor where somebody wrote the comparison, and else none.
        """
        if compare.factor is not None:
            return compare.factor
        names = [factor.name for factor in self.factors]
        if self.sweeps and "compare" not in self.model.model_fields_set:  # of a single level there is nothing to ask
            several = (factor.name for factor in self.factors if len(factor.levels) > 1)
            names = [name for name in several if name not in self.sweeps]
        return next((name for name in names if name not in self.sweeps), names[0] if names else None)

    def whole(self) -> Study | None:
        """The same with all levels; ``None`` where these make no study: too many cells, or a file that is gone."""

        def read(name: str) -> str:
            return self.inputs[name] if name in self.inputs else read_input(Path(self.file).parent, name)

        try:
            return parse_study(self.text.encode(), self.file, read, self.overrides)
        except StudyError:
            return None

    def problem(self, path: TreePath, message: str) -> StudyError:
        """An error about this study, with the line where ``path`` stands."""
        set_paths = {apply_override(read_toml(self.text.encode(), self.file)[1], each): each for each in self.overrides}
        return StudyError(self.file, [_problem_at(path, message, positions(self.text), set_paths)])


def shipped_studies() -> dict[str, Path]:
    """Name → file of the studies that come with Storlab."""
    folder = Path(str(files("storlab") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def preset_studies() -> dict[str, Path]:
    """Name → file of the presets: loads that the field knows by name, as studies to run or to begin with."""
    folder = Path(str(files("storlab") / "studies" / "presets"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def named_studies() -> dict[str, Path]:
    """All that a name alone stands for."""
    return {**shipped_studies(), **preset_studies()}


def find_study(name: str) -> Path:
    """The name of a shipped study or a preset, or a path. Raises ``UserError``."""
    shipped = named_studies()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir() raises where a name is too long
        raise UserError(f"{name} is a folder; name a study file in it")
    if os.path.exists(path):  # noqa: PTH110 - also a pipe: storlab plan <(generate-study)
        return path
    hint = nearest(name, shipped)
    raise UserError(f"unknown study {name!r}: neither a file nor one of {', '.join(shipped)}{hint}")


def load_study(
    path: Path, overrides: Sequence[str] = (), only: Sequence[str] = (), lab: Callable[[], str] | None = None
) -> Study:
    """Read a study file. Raises ``StudyError`` with all problems, ``UserError`` for bad overrides.

    ``lab`` gives the machines of the lab (``machines_text``), asked only by a study that refers to them.
    """
    data = read_bounded(path, UserError, pipes=True)

    def read(name: str) -> str:
        if name != LAB:
            return read_input(path.parent, name)
        if lab is None:
            raise ValueError("this is about the lab: write --lab FILE, or set STORLAB_LAB")
        return lab()

    return parse_study(data, str(path), read, overrides, only)


def parse_study(
    data: bytes, file: str, read: ReadInput, overrides: Sequence[str] = (), only: Sequence[str] = ()
) -> Study:
    """As ``load_study``, from bytes; ``read`` gives the contents of a file that the study names."""
    text, raw = read_toml(data, file)
    before = kinds_of(raw)
    changed = {apply_override(raw, override): override for override in overrides}
    apply_profile(raw, changed)
    change_kinds(raw, before, changed)
    problems: dict[tuple[TreePath, str], None] = {}  # ordered, each once: a fault shows in many cells

    def report(where: TreePath, message: str) -> None:
        problems[where, message] = None

    def refuse_if_any() -> None:
        if problems:
            lines = positions(text)
            found = [_problem_at(where, message, lines, changed) for where, message in problems]
            raise StudyError(file, sorted(found, key=lambda problem: problem.line or 0))

    inputs: dict[str, str] = {}

    def remember(name: str) -> str:
        if name not in inputs:
            inputs[name] = read(name)
        return inputs[name]

    try:
        model = _model(raw, report)
        used: set[str] = set()
        parameters = raw["parameters"] if isinstance(raw.get("parameters"), dict) else {}
        given = raw["factors"] if isinstance(raw.get("factors"), dict) else {}
        every = read_factors(given, report, parameters, used)
        refuse_if_any()
        assert model is not None
        factors = apply_only(only, every)
        levels = {factor.name: [level.label for level in factor.levels] for factor in every}
        swept = [name for name, labels in levels.items() if is_sweep(labels)]
        loading = [name for name in swept if names_load(name) or _is_load(name, {**model.workload, **model.nodes})]
        sweeps = tuple(dict.fromkeys([*loading, *swept]))
        possible = _possible(data, file)
        _check_names(model, levels, possible, sweeps, report)
        check_claims(model.claim, levels, possible, report)
        check_objectives(model.slo, levels, sweeps, report)
        _check_profiles(model, report)
        _limit_cells(factors, report)
        refuse_if_any()
        cells = tuple(expand(Source(raw, model, levels, remember, report, Path(file).parent), factors, used))
        _check_metrics(cells, report)
        _check_disk(model, cells, report)
        check_networks(cells, report)
        check_cloning(cells, report)
        check_devices(cells, report)
        check_alike(cells, report)
        refuse_if_any()
    except RecursionError:
        raise StudyError(file, [Problem("", "this is nested too deeply for a study")]) from None
    except Outgrown as error:
        raise StudyError(file, [_problem_at(error.path, str(error), positions(text), changed)]) from None
    used |= {name for name in model.parameters if f"{{{name}}}" in text}  # in a level or load that isn't chosen here
    unused = () if only else _unused(model, factors, cells, used)
    notes = (*network_notes(cells), *native_notes(cells), *unused, *_sectors_note(model, raw))
    selected = inputs, tuple(overrides), tuple(only)
    return Study(file, text, model, tuple(factors), cells, *selected, notes, sweeps, len(loading))


def _is_load(factor: str, tables: object) -> bool:
    """Whether the levels of a factor are what a key of these tables is that says how much is asked at once."""
    for key, value in tables.items() if isinstance(tables, dict) else ():
        if isinstance(value, str) and names_load(key) and f"{{{factor}}}" in value:
            return True
        if _is_load(factor, value.model_dump() if isinstance(value, BaseModel) else value):
            return True
    return False


def _problem_at(
    path: TreePath, message: str, lines: Mapping[TreePath, int], changed: Mapping[TreePath, str]
) -> Problem:
    """A problem with its key as one writes it and its line, or the --set that brought it."""
    key, path = "", as_written(path, lines)
    for part in path:
        written = part if isinstance(part, int) or re.fullmatch(r"[\w-]+", part) else shown(part)
        key += f"[{written}]" if isinstance(part, int) else f".{written}" if key else str(written)
    for where, override in changed.items():
        if path[: len(where)] == where:
            return Problem(f"--set {override}", printable(message))
    return Problem(key, printable(message), line_of(path, lines))


def _model(raw: Mapping[str, Any], report: Report) -> StudyFile | None:
    try:
        return StudyFile.model_validate(raw)
    except ValidationError as error:
        for where, message in explain(error, StudyFile):
            report(where, message)
        return None


def _possible(data: bytes, file: str) -> dict[str, list[str]]:
    """Levels of each factor as the file has them, with its own parameters and with those of each of its profiles."""
    _, written = read_toml(data, file)
    given, parameters, profiles = (
        value if isinstance(value := written.get(key), dict) else {} for key in ("factors", "parameters", "profiles")
    )
    found: dict[str, list[str]] = {}
    for values in ({}, *(values for values in profiles.values() if isinstance(values, dict))):
        for factor in read_factors(given, lambda _where, _message: None, {**parameters, **values}):
            found.setdefault(factor.name, []).extend(level.label for level in factor.levels)
    return found


def _check_profiles(model: StudyFile, report: Report) -> None:
    if model.profile is not None and model.profile not in model.profiles:
        report(("profile",), unknown(f"profile {model.profile!r}", model.profile, model.profiles))
    for profile, values in model.profiles.items():
        for name in values:
            if name not in model.parameters:
                report(("profiles", profile, name), unknown(f"parameter {name!r}", name, model.parameters))


def _check_names(
    model: StudyFile,
    levels: Mapping[str, Sequence[str]],
    possible: Mapping[str, Sequence[str]],
    sweeps: Sequence[str],
    report: Report,
) -> None:
    for name in levels:
        if name in model.parameters:
            report(("factors", name), f"{name} is a parameter already: give one of them another name")
    for table in ("factors", "parameters"):
        for name in getattr(model, table):
            if name in PLACE_WORDS:
                report((table, name), f"{{{name}}} is filled in when a trial runs: call this something else")
    for index, compare in enumerate(model.compare):
        path: TreePath = ("compare", index)
        if compare.factor is not None and compare.factor not in levels:
            has = nearest(compare.factor, levels) or (f"; there are: {', '.join(levels)}" if levels else "")
            report((*path, "factor"), f"unknown factor {compare.factor!r}{has}")
        elif levels:
            factor = compare.factor or next((name for name in levels if name not in sweeps), next(iter(levels)))
            _check_pairs(
                compare.pairs or (), factor, levels[factor], possible.get(factor, ()), (*path, "pairs"), report
            )
        elif compare.pairs:
            report((*path, "pairs"), "without factors there is nothing to compare")
        if not compare.within and not compare.pooled:
            report(path, "with within = false and pooled = false it compares nothing: leave one of them out")


def _check_pairs(
    pairs: Sequence[tuple[str, str]],
    factor: str,
    levels: Sequence[str],
    possible: Sequence[str],
    path: TreePath,
    report: Report,
) -> None:
    """``possible``: levels with other parameters, too, which a comparison may be about."""
    seen: set[frozenset[str]] = set()
    for number, pair in enumerate(pairs):
        for place, level in enumerate(pair):
            if level not in levels and level not in possible:
                has = nearest(level, levels) or f"; it has {', '.join(levels)}"
                report((*path, number, place), f"{factor} has no level {level!r}{has}")
        if pair[0] == pair[1]:
            report((*path, number), f"{pair[0]!r} is compared with itself")
        elif frozenset(pair) in seen:
            report((*path, number), f"{pair[0]!r} and {pair[1]!r} are compared already")
        seen.add(frozenset(pair))


def _check_disk(model: StudyFile, cells: Sequence[Cell], report: Report) -> None:
    """Whether the disk that the study names is in some stack."""
    if model.disk is None:
        if model.wipe is not None:
            report(("wipe",), f'wipe names the study\'s disk once more: write disk = "{model.wipe}" as well')
        return
    layers = (layer for cell in cells for each in cell.declared for layer in each.layers)
    if model.disk == LAB and model.wipe is not None:
        report(("wipe",), "whether a host's disk may be wiped is said by the lab: write wipe beside its disk there")
    elif model.disk == LAB and not any(layer.claims() == LAB for layer in layers):
        remedy = 'write kind = "ssh" and hosts = "@GROUP" in [nodes.NAME], or run it there: storlab run STUDY --on HOST'
        report(("disk",), f"no stack of this study begins with a disk of a host of the lab: {remedy}")
    elif model.disk != LAB and not any(layer.claims() == model.disk for layer in layers):
        report(
            ("disk",),
            f"no stack of this study begins with a disk of this machine, in whose place {model.disk} could be: put a "
            'file system on it and name its directory in layer "directory" (--set stack.0.path=DIRECTORY), or write '
            f'stack = [{{ layer = "device", path = "{model.disk}" }}, …]',
        )


def _sectors_note(model: StudyFile, raw: Mapping[str, Any]) -> list[str]:
    """That levels may be one and the same set-up on a disk whose sectors are what they are."""
    sizes = list(dict.fromkeys(_of_loops(raw))) if model.disk is not None else []
    said = f"sector sizes of loop devices ({', '.join(sizes)}) are left out: {model.disk} has its own"
    return [said] if sizes else []


def _of_loops(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict) and tree.get("layer") == "loop" and "sector_size" in tree:
        yield str(tree["sector_size"])
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _of_loops(part)


def _check_metrics(cells: Sequence[Cell], report: Report) -> None:
    """A metric means one thing in all cells: else seconds would be compared with rates."""
    known: dict[tuple[str, str], MetricSpec] = {}
    for load in (load for cell in cells for load in cell.loads):
        for spec in load.workload.declares():
            first = known.setdefault((load.name, spec.name), spec)
            for key in ("unit", "better") if first is not spec else ():
                one, other = getattr(first, key), getattr(spec, key)
                if one != other:
                    message = f"{spec.name} has {key} = {shown(one)} in one cell and {shown(other)} in another"
                    report(("workload", load.name), f"{message}: levels cannot be compared by it")


def _limit_cells(factors: Sequence[Factor], report: Report) -> None:
    if len(factors) > FACTORS:
        report(("factors",), f"there are {len(factors)} factors, more than {FACTORS}: leave out some, or ask in parts")
    count = math.prod(len(factor.levels) for factor in factors)
    if count > CELLS:
        cells = f"{count} cells" if count < 10**15 else "a vast number of cells"
        report(("factors",), f"these factors make {cells}, more than {CELLS}: leave out levels, or use --only")


def _unused(model: StudyFile, factors: Sequence[Factor], cells: Sequence[Cell], used: set[str]) -> list[str]:
    """What is in none of the ``cells``, which are all of the study's."""
    run = {load.name for cell in cells for load in cell.loads}
    chosen = "{" in str(model.trial.get("workloads"))  # by levels, of which a run may have some
    return [
        *(
            f"the factor {factor.name} is used nowhere: its levels are one and the same set-up (an A/A comparison)"
            for factor in factors
            if factor.name not in used
        ),
        *(f"the parameter {name} is used nowhere" for name in model.parameters if name not in used),
        *(f"the workload {name} is run in no cell" for name in model.workload if name not in run and not chosen),
    ]
