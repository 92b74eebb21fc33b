"""A study: loaded, checked and expanded to cells, or refused with every problem that was found."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from storlab.errors import Problem, StudyError, UserError
from storlab.study.cells import Cell, TreePath, expand, nearest, problem_at
from storlab.study.factors import Factor, read_factors
from storlab.study.messages import explain
from storlab.study.positions import positions
from storlab.study.schema import StudyFile
from storlab.workloads.base import ReadInput

MAX_CELLS = 10_000
MAX_TEXT = 4 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class Study:
    """A study that can be run. ``text`` is the file as it stood, ``overrides`` what --set changed.

    ``inputs`` are the contents of the files that it names, such as fio job files. ``notes`` are for its reader.
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

    def problem(self, path: TreePath, message: str) -> StudyError:
        """An error about this study, with the line where ``path`` stands."""
        return StudyError(self.file, [problem_at(path, message, positions(self.text))])


def shipped_studies() -> dict[str, Path]:
    """Name → file of the studies that come with Storlab."""
    folder = Path(str(files("storlab") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_study(name: str) -> Path:
    """A shipped study's name, or a path. Raises ``UserError``."""
    shipped = shipped_studies()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{name} is a folder; name a study file in it")
    hint = nearest(name, shipped)
    raise UserError(f"there is no study {name!r}: neither a file nor one of {', '.join(shipped)}{hint}")


def load_study(path: Path, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Study:
    """Read a study file. Raises ``StudyError`` with all problems, ``UserError`` for bad overrides."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None
    return parse_study(data, str(path), lambda name: _read_input(path.parent / name), overrides, only)


def _read_input(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} can't be read: it is not text") from None


def parse_study(
    data: bytes, file: str, read: ReadInput, overrides: Sequence[str] = (), only: Sequence[str] = ()
) -> Study:
    """As ``load_study``, from bytes; ``read`` gives the contents of a file that the study names."""
    text, raw = _read_toml(data, file)
    for override in overrides:
        _apply_override(raw, override)
    problems: dict[tuple[TreePath, str], None] = {}  # ordered, each once: a fault shows in many cells

    def report(where: TreePath, message: str) -> None:
        problems[where, message] = None

    def refuse_if_any() -> None:
        if problems:
            lines = positions(text)
            found = [problem_at(where, message, lines) for where, message in problems]
            raise StudyError(file, sorted(found, key=lambda problem: problem.line or 0))

    model = _model(raw, report)
    factors = read_factors(raw["factors"], {}, report) if isinstance(raw.get("factors"), dict) else []
    chosen = _only(only, factors)
    factors = read_factors(raw.get("factors", {}), chosen, lambda *_: None) if chosen else factors
    refuse_if_any()
    assert model is not None
    _check_names(model, factors, report)
    _limit_cells(factors, report)
    refuse_if_any()
    used: set[str] = set()
    inputs: dict[str, str] = {}

    def remember(name: str) -> str:
        inputs[name] = read(name)
        return inputs[name]

    cells = tuple(expand(raw, model, factors, remember, report, used))
    refuse_if_any()
    notes = [
        f"the factor {factor.name} is used nowhere: its levels are one and the same set-up (an A/A comparison)"
        for factor in factors
        if factor.name not in used
    ]
    return Study(file, text, model, tuple(factors), cells, inputs, tuple(overrides), tuple(only), tuple(notes))


def _read_toml(data: bytes, file: str) -> tuple[str, dict[str, Any]]:
    if len(data) > MAX_TEXT:
        raise StudyError(file, [Problem("", f"{len(data)} bytes are too long for a study; is this the right file?")])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise StudyError(file, [Problem("", "this is not UTF-8 text", line)]) from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, where = str(error).rpartition(" (at line ")
        line = int(where.partition(",")[0]) if message else text.count("\n") + 1
        reason = (message or str(error)).removesuffix(" (at end of document)")
        raise StudyError(file, [Problem("", f"this is not TOML: {reason}", line)]) from None
    except RecursionError:
        raise StudyError(file, [Problem("", "this is nested too deeply for a study")]) from None


def _model(raw: Mapping[str, Any], report: Any) -> StudyFile | None:
    try:
        return StudyFile.model_validate(raw)
    except ValidationError as error:
        for where, message in explain(error, StudyFile):
            report(where, message)
        return None


def _apply_override(raw: dict[str, Any], override: str) -> None:
    """``a.b.c=VALUE``; a single name that is a parameter means that parameter. VALUE is TOML, or else text."""
    path, separator, written = override.partition("=")
    if not separator or not path.strip():
        raise UserError(f"--set {override}: write PATH=VALUE, such as --set repeat.max=10")
    parts = path.strip().split(".")
    parameters = raw.get("parameters", {})
    if len(parts) == 1 and isinstance(parameters, dict) and parts[0] in parameters:
        parts = ["parameters", parts[0]]
    elif len(parts) == 1 and parts[0] not in StudyFile.model_fields and parts[0] != "schema":
        known = [*parameters, *StudyFile.model_fields]
        raise UserError(f"--set {override}: the study has no parameter {parts[0]!r}{nearest(parts[0], known)}")
    here: Any = raw
    for index, part in enumerate(parts[:-1]):
        here = _step(here, part, override, ".".join(parts[:index]))
    last = parts[-1]
    value = _toml_value(written)
    if isinstance(here, list):
        _step(here, last, override, ".".join(parts[:-1]))
        here[int(last)] = value
    elif isinstance(here, dict):
        here[last] = value
    else:
        raise UserError(f"--set {override}: {'.'.join(parts[:-1])} is not a table")


def _step(here: Any, part: str, override: str, path: str) -> Any:
    if isinstance(here, list):
        if not part.isdigit() or int(part) >= len(here):
            raise UserError(
                f"--set {override}: {path} is a list of {len(here)}; write a number from 0 instead of {part!r}"
            )
        return here[int(part)]
    if isinstance(here, dict):
        return here.setdefault(part, {})
    raise UserError(f"--set {override}: {path} is not a table")


def _toml_value(written: str) -> Any:
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return written


def _only(only: Sequence[str], factors: Sequence[Factor]) -> dict[str, list[str]]:
    """``FACTOR=LEVEL[,LEVEL]`` as a mapping. Raises ``UserError`` for what the study does not have."""
    chosen: dict[str, list[str]] = {}
    by_name = {factor.name: [level.label for level in factor.levels] for factor in factors}
    for item in only:
        name, separator, levels = item.partition("=")
        if not separator or not levels:
            raise UserError(f"--only {item}: write FACTOR=LEVEL[,LEVEL]")
        if name not in by_name:
            raise UserError(f"--only {item}: the study has no factor {name!r}{nearest(name, by_name)}")
        for level in levels.split(","):
            if level not in by_name[name]:
                known = ", ".join(by_name[name])
                raise UserError(
                    f"--only {item}: {name} has no level {level!r}{nearest(level, by_name[name])}; it has {known}"
                )
            chosen.setdefault(name, []).append(level)
    return chosen


def _check_names(model: StudyFile, factors: Sequence[Factor], report: Any) -> None:
    names = {factor.name: [level.label for level in factor.levels] for factor in factors}
    for name in names:
        if name in model.parameters:
            report(("factors", name), f"{name} is a parameter already: give one of them another name")
    for index, compare in enumerate(model.compare):
        if compare.factor is not None and compare.factor not in names:
            report(
                ("compare", index, "factor"), f"there is no factor {compare.factor!r}{nearest(compare.factor, names)}"
            )
            continue
        factor = compare.factor or next(iter(names), None)
        for number, pair in enumerate(compare.pairs or ()):
            for level in pair:
                if factor is not None and level not in names[factor]:
                    hint = nearest(level, names[factor])
                    report(("compare", index, "pairs", number), f"{factor} has no level {level!r}{hint}")
            if pair[0] == pair[1]:
                report(("compare", index, "pairs", number), f"{pair[0]!r} is compared with itself")


def _limit_cells(factors: Sequence[Factor], report: Any) -> None:
    count = 1
    for factor in factors:
        count *= len(factor.levels)
    if count > MAX_CELLS:
        report(
            ("factors",), f"these factors make {count} cells, more than {MAX_CELLS}: leave out levels, or use --only"
        )
