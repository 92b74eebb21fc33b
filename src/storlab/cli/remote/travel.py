"""What of a command line goes to another machine: its words, the files that they name, and what comes back of it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from storlab.base.errors import UserError

if TYPE_CHECKING:
    from storlab.remote.host import Brought
    from storlab.study.study import Study

_MOST_FILES = 10_000


@dataclass(frozen=True)
class Rule:
    """How one command travels. Its parameters by name; all others go as they are, and paths in them are paths there.

    ``study``: it has one. ``run``: a run's folder, or several. ``out``: it makes a folder, called so by default.
    ``output``: names a file that it writes, if asked to. ``inputs``: files and folders of this machine, if they are
    there. ``dropped``: for this machine to heed. ``terminal``: what takes a terminal, and can't be.
    ``measures``: it puts load on the machine, for as long as it takes. ``tied``: it always ends with its connection.
    """

    study: bool = False
    run: str = ""
    out: str | None = None
    output: str = ""
    inputs: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    measures: bool = False
    tied: bool = False


_OF_SUITES = ("names", "tests", "exclude", "failed_of", "history", "expect")
RULES = {
    "run": Rule(study=True, out="", dropped=("quiet", "json"), measures=True),
    "resume": Rule(run="folder", dropped=("quiet", "json"), measures=True),
    "plan": Rule(study=True),
    "doctor": Rule(),
    "noise": Rule(study=True, measures=True),
    "crash": Rule(study=True, out="crash-", measures=True),
    "clean": Rule(run="folder"),
    "report": Rule(run="folder", output="output"),
    "trace": Rule(output="out", tied=True),
    "image build": Rule(measures=True),
    "image virtiofsd": Rule(measures=True),
    "image mysql": Rule(measures=True),
    "image list": Rule(),
    "image remove": Rule(),
    "suite run": Rule(inputs=_OF_SUITES, out="", terminal=("shell_on_failure", "debug", "replay"), measures=True),
    "suite resume": Rule(run="folder", measures=True),
    "suite check": Rule(inputs=("checkout", "without_file"), out="check", measures=True),
    "suite list": Rule(inputs=_OF_SUITES),
    "suite report": Rule(run="folders", output="output", inputs=("expect",)),
}
"""By the words of the command. Those that aren't here don't travel."""


@dataclass
class Journey:
    """``files``: contents by their names there. ``results``: by their names there, what they become here.

    ``work``: the job in whose directory the command runs.
    """

    words: list[str]
    files: dict[str, Brought] = field(default_factory=dict)
    results: dict[str, Path] = field(default_factory=dict)
    work: str | None = None


def journey(name: str, given: list[tuple[Any, Any]], host: str) -> Journey:
    """``given``: parameters of Click's and their values, those that were written. Raises ``UserError``."""
    rule = RULES[name]
    made = Journey(name.split())
    values = {parameter.name: value for parameter, value in given}
    if unfit := [key for key in rule.terminal if values.get(key)]:
        option = f"--{unfit[0].replace('_', '-')}"
        raise UserError(f"{option} does not go with --on: log in to {host} and say it there")
    settings = _said_by_the_lab(values, host) if rule.study and values.get("study") else []
    study = _study(values, settings) if rule.study and values.get("study") else None
    if "names" in rule.inputs:
        _refuse_suite(values)
    options: list[str] = []
    arguments: list[str] = []
    for parameter, value in given:
        if parameter.name in (*rule.dropped, "on", "tied", "lab") or value in (None, False, ()):
            continue
        written = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
        words = [_word(made, rule, parameter.name, each, host, study) for each in written]
        if parameter.param_type_name == "argument":
            arguments += words
        else:
            option = next((each for each in parameter.opts if each.startswith("--")), parameter.opts[0])
            options += [option] if value is True else [f"{option}={word}" for word in words]
    options += [f"--set={each}" for each in settings]  # after those that were written: the last one counts
    if rule.out is not None and "out" not in values:
        options.append(f"--out={_out(made, rule, values, study)}")
    made.words += [*options, *(["--", *arguments] if arguments else [])]
    return made


def _word(made: Journey, rule: Rule, key: str, written: str, host: str, study: Study | None) -> str:
    if key == "study" and study is not None:
        return _bring_study(made, written, study)
    if key == rule.run:
        return _run(made, written, host, changes=not rule.output)
    if key == "out" and rule.out is not None:
        return _result(made, Path(written), new=True)
    if key == rule.output:
        return _result(made, Path(written), new=False)
    if key in rule.inputs:
        sign = "@" if written.startswith("@") else ""
        path = Path(written.removeprefix(sign))
        return sign + _bring(made, path) if path.exists() else written
    return written


def _said_by_the_lab(values: dict[str, Any], host: str) -> list[str]:
    """For --set: the machine's own disk where the study has ``disk = "@lab"``, and its scratch folder where the command
    line names a lab. Raises ``UserError``.
    """
    from storlab.cli.options import lab_of
    from storlab.study.machines import LAB
    from storlab.study.study import find_study

    written = dict(word.partition("=")[::2] for word in values.get("set_") or ())
    asks = {"disk": _disk_of(find_study(values["study"])), **written}["disk"] == LAB
    if not asks and values.get("lab") is None:
        return []
    lab = lab_of(values.get("lab"))
    known = lab.machines.of(host)
    said = [f"scratch={known.scratch}"] if known is not None and known.scratch and "scratch" not in written else []
    if asks:
        try:
            disk, wipe = lab.machines.disk_of(host)
        except ValueError as error:
            raise UserError(f"{lab.file}: {error}") from None
        said += [f"disk={disk}", *([f"wipe={wipe}"] if wipe else [])]
    return said


def _disk_of(study: Path) -> object:
    """``disk`` as the file says it; nothing of one that can't be read, as those who read it say."""
    import tomllib

    with contextlib.suppress(OSError, ValueError):
        if study.is_file():
            return tomllib.loads(study.read_text("utf-8")).get("disk")
    return None


def _refuse_suite(values: dict[str, Any]) -> None:
    from storlab.run.permissions import Permissions, parse_allowed
    from storlab.suites.run.own_files import refuse_unpermitted_files

    if not values.get("wants"):
        allowed = parse_allowed(values.get("allow") or ())
        refuse_unpermitted_files(values.get("names") or (), Permissions(allowed=allowed))


def _study(values: dict[str, Any], more: list[str]) -> Study:
    """Refused here, rather than there, where it can't be used. ``more``: settings beside those that were written."""
    from storlab.cli.options import StudyOptions
    from storlab.run.planning.wants import refuse_unpermitted

    options = StudyOptions(
        *(values["study"], [*(values.get("set_") or ()), *more], [*(values.get("only") or ())]),
        allow=tuple(values.get("allow") or ()),
    )
    study = options.load()
    if not values.get("wants"):
        refuse_unpermitted(study, options.permissions(study))  # as well as there, where the same words say it
    return study


def _bring_study(made: Journey, written: str, study: Study) -> str:
    """With the files that it names, which lie beside it there as they do here."""
    from storlab.remote.host import Brought
    from storlab.study.study import named_studies

    if written in named_studies():
        return written
    place = PurePosixPath(_name_there(Path(written)))
    made.files[str(place)] = Brought(study.text.encode())
    for name, text in study.inputs.items():
        made.files[_plainly(place.parent / name)] = Brought(text.encode())
    return str(place)


def _plainly(path: PurePosixPath) -> str:
    """Without ``..``: where it leads, for nothing there is a link."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _name_there(path: Path) -> str:
    """The same if that is below the directory that both begin in, so that messages name it as its user does."""
    if path.is_absolute() or ".." in path.parts or not path.name:
        return f"given/{path.resolve().name or 'root'}"
    return str(path)


def _bring(made: Journey, path: Path) -> str:
    """A file, or a folder with all in it. Raises ``UserError``."""
    from storlab.remote.host import Brought

    name = _name_there(path)
    while name in made.files or any(each.startswith(f"{name}/") for each in made.files):
        name = f"more/{name}"
    for each in (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else [path]:
        rest = each.relative_to(path)
        try:
            brought = Brought(each.read_bytes(), os.access(each, os.X_OK))
        except OSError as error:
            raise UserError(f"cannot read {each}: {error.strerror}") from None
        made.files[f"{name}/{rest}" if rest.parts else name] = brought
        if len(made.files) > _MOST_FILES:
            raise UserError(f"{path} has more than {_MOST_FILES:,} files, too many to take along")
    return name


def _out(made: Journey, rule: Rule, values: dict[str, Any], study: Study | None) -> str:
    from storlab.cli.options import new_folder

    names = values.get("names") or ()
    stem = Path(study.file).stem if study is not None else Path(str(next(iter(names), ""))).stem
    return _result(made, new_folder(f"{rule.out}{stem}" or "suite"), new=True)


def _result(made: Journey, path: Path, *, new: bool) -> str:
    """Something that comes back. Raises ``UserError`` if a folder of that name is in use."""
    from storlab.records.held import make_private

    if new and path.is_dir():
        try:
            make_private(path)
        except OSError as error:
            raise UserError(f"{path} can't be used for the run: {error.strerror}") from None
    elif new and path.exists():
        raise UserError(f"{path} can't be used for the run: it is not a folder")
    name = path.name if path.is_absolute() and path.name else _name_there(path)
    made.results[name] = path
    return name


def _run(made: Journey, written: str, host: str, *, changes: bool) -> str:
    """A run whose records are here, and which lies there. Raises ``UserError`` for any other."""
    from storlab.remote.host import read_origin

    origin = read_origin(Path(written))
    if origin is None:
        raise UserError(f"{written} is not the folder of a run with --on: no {written}/on.json says where it was run")
    if origin.host != host:
        raise UserError(f"{written} was run on {origin.host}, so --on {host} does not know it")
    if made.work not in (None, origin.job):
        raise UserError("these runs were begun one by one: with --on, name one at a time")
    made.work = origin.job
    if changes:
        made.results[origin.name] = Path(written)
    return origin.name
