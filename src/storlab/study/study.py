"""A study: loaded, checked and expanded to cells, or refused with every problem that was found."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from storlab.base.errors import Problem, StudyError, UserError
from storlab.base.levels import is_sweep, names_load
from storlab.base.limits import STUDY_TEXT
from storlab.base.reading import opened_below, read_file
from storlab.base.text import printable
from storlab.base.units import shown
from storlab.study.cells import Cell
from storlab.study.checks import check_cells, check_questions, notes_on
from storlab.study.factors import Factor, read_factors
from storlab.study.machines import LAB
from storlab.study.messages import explain, nearest
from storlab.study.overrides import (
    apply_only,
    apply_override,
    apply_profile,
    change_kinds,
    kinds_of,
)
from storlab.study.questions import Compare
from storlab.study.read_cells import Report, Source, expand
from storlab.study.schema import StudyFile
from storlab.study.substitution import Outgrown
from storlab.study.toml_text import Path as TreePath
from storlab.study.toml_text import as_written, line_of, positions, read_toml
from storlab.workloads.base import ReadInput


def read_bounded(path: Path, refusal: type[Exception], pipes: bool = False, named: Path | None = None) -> bytes:
    """At most ``STUDY_TEXT`` bytes: never a whole disk image, should one be named by mistake.

    Raises ``refusal``, which calls the file ``named`` where ``path`` is a descriptor of it.
    """
    try:
        return read_file(path, STUDY_TEXT, pipes)
    except OSError as error:
        hint = "; is it the right file?" if error.errno == errno.EFBIG else ""
        raise refusal(f"cannot read {named or path}: {error.strerror}{hint}") from None


def read_input(folder: Path, name: str) -> str:
    """The text of a file that a study in ``folder`` names: one below that folder, not behind a link.

    What it holds is recorded with the run, and shared with it. Raises ``ValueError``.
    """
    try:
        with opened_below(folder, name) as found:
            return read_bounded(found, ValueError, named=folder / name).decode()
    except OSError as error:
        raise ValueError(f"cannot read {folder / name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read {folder / name}: it is not text") from None


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
        names = [factor.name for factor in self.factors if factor.name not in (compare.at or {})]
        if self.sweeps and "compare" not in self.model.model_fields_set:  # of a single level there is nothing to ask
            several = (factor.name for factor in self.factors if len(factor.levels) > 1)
            names = [name for name in several if name not in self.sweeps and name in names]
        return next((name for name in names if name not in self.sweeps), names[0] if names else None)

    def whole(self) -> Study | None:
        """The same with all levels; ``None`` if these make no study: too many cells, or a file that is gone."""

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
        check_questions(model, factors, levels, _possible(data, file), sweeps, report)
        refuse_if_any()
        cells = tuple(expand(Source(raw, model, levels, remember, report, Path(file).parent), factors, used))
        if not cells and not problems:
            report(("exclude",), "these leave no combination of levels: leave one of them out")
        check_cells(model, cells, report)
        refuse_if_any()
    except RecursionError:
        raise StudyError(file, [Problem("", "this is nested too deeply for a study")]) from None
    except Outgrown as error:
        raise StudyError(file, [_problem_at(error.path, str(error), positions(text), changed)]) from None
    used |= {name for name in model.parameters if f"{{{name}}}" in text}  # in a level or load that isn't chosen here
    notes = notes_on(model, raw, factors, cells, None if only else used)
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
