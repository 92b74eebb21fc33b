"""Runfiles of the ZFS Test Suite's runner: sections that name tests, as groups in the order in which it runs them.

The syntax is that of Python's ``RawConfigParser``, as test-runner(1) has it: what stands in ``[DEFAULT]`` holds for all
sections; ``[DIR]`` or ``[DIR:IDENTIFIER]`` with ``tests`` is a group, any other section a single test; later files add
to earlier ones. Lists are literals, and nothing is evaluated.
"""

from __future__ import annotations

import ast
import configparser
import difflib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from storlab.errors import UserError
from storlab.suites.installed import Installed
from storlab.suites.model import Absent, Group, Script, Suite

_TIMEOUT = 60.0  # s, where a runfile has none
_MOST_TIMEOUT = 30 * 24 * 3600  # s
_HEADER = re.compile(r"\[(?P<header>.+)\]")  # as configparser's SECTCRE
_OPTION = re.compile(r"(?P<option>[^\s=:][^=:]*+)[=:]")
_LONGEST = 8192  # characters of a line: configparser's own expressions take time that grows with the square
_KEYS = frozenset(
    {"tests", "pre", "pre_user", "user", "timeout", "post", "post_user", "failsafe", "failsafe_user", "tags", "quiet"}
)
_IGNORED = frozenset({"outputdir", "debug"})  # Storlab's own run folder takes their place


class RunfileError(UserError):
    """A runfile that can't be read, with its file and line."""

    def __init__(self, file: str, line: int | None, message: str) -> None:
        super().__init__(f"{file}{f':{line}' if line is not None else ''}: {message}")


@dataclass(frozen=True)
class Runfile:
    """A runfile's text. ``name``: what messages call it. ``own``: the user's, who can put it right: more is refused."""

    name: str
    text: str
    own: bool = False


@dataclass(frozen=True)
class _Section:
    """One section with what it inherits, and where its options stand."""

    name: str
    options: dict[str, str]
    lines: dict[str, tuple[str, int]]
    where: tuple[str, int]

    def place(self, option: str) -> tuple[str, int]:
        return self.lines.get(option, self.where)

    def fail(self, option: str, message: str) -> RunfileError:
        return RunfileError(*self.place(option), f"[{self.name}] {option}: {message}")

    def at(self, option: str) -> str:
        file, line = self.place(option)
        return f"{file}:{line}"


def read_suite(name: str, runfiles: Sequence[Runfile], installed: Installed, testdir: str) -> Suite:
    """The groups that these runfiles name and that can be run; what can't be is in ``absent``, with file and line.

    ``testdir``: what relative sections are below. Raises ``RunfileError``.
    """
    sections, notes = _sections(runfiles)
    groups: list[Group] = []
    singles: list[Group] = []
    absent: list[Absent] = []
    for section in sections:
        if "tests" in section.options:
            group, missing = _group(section, installed, testdir)
            kept = groups
        else:
            group, missing = _single(section, installed, testdir)
            kept = singles
        absent += missing
        if group is not None:
            kept.append(group)
    ordered = sorted(singles, key=lambda group: group.name) + sorted(groups, key=lambda group: group.name)
    folders = unique_folders([group.name for group in ordered])
    placed = tuple(replace(group, folder=folders[group.name]) for group in ordered)
    quiet = any(_boolean(section, "quiet") for section in sections)
    return Suite(name, placed, tuple(absent), quiet, tuple(notes))


def check_runfiles(runfiles: Sequence[Runfile]) -> None:
    """Raise ``RunfileError`` for what is wrong with runfiles whatever machine they are run on."""
    for runfile in runfiles:
        if "\0" in runfile.text:
            line = runfile.text[: runfile.text.index("\0")].count("\n") + 1
            raise RunfileError(runfile.name, line, "a zero byte stands here, so this is no runfile")
    read_suite("", runfiles, Installed(), "/")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """What to say of a name that nothing has, with the nearest that there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name[:100], names, 1)
    return f"unknown {what}" + (f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}")


def unique_folders(names: Sequence[str]) -> dict[str, str]:
    """The shortest ends of paths that are different for all of them, of as many components each."""
    components = 0
    while True:
        components += 1
        ends = {name: "/".join(name.split("/")[-components:]).lstrip("/") for name in names}
        if len(set(ends.values())) == len(ends) or components > max((name.count("/") for name in names), default=0):
            return {name: inside(end) for name, end in ends.items()}


def inside(path: str) -> str:
    """As a path that leads nowhere else."""
    return "/".join(part for part in path.split("/") if part not in ("", ".", "..")) or "_"


def _sections(runfiles: Sequence[Runfile]) -> tuple[list[_Section], list[str]]:
    parser = configparser.RawConfigParser()
    lines: dict[tuple[str, str], tuple[str, int]] = {}
    notes: list[str] = []
    for runfile in runfiles:
        _parse(parser, runfile)
        for section, option, line in _places(runfile.text):
            lines[section, option] = (runfile.name, line)
            if option in _IGNORED:
                notes.append(f"{runfile.name}:{line}: {option} is ignored: output goes into the run's folder")
            elif option and option not in _KEYS:
                if runfile.own:
                    raise RunfileError(runfile.name, line, unknown(f"option {option!r} of [{section}]", option, _KEYS))
                notes.append(f"{runfile.name}:{line}: unknown option {option!r} is ignored")
    found = []
    for name in parser.sections():
        options = {option: parser.get(name, option) for option in parser.options(name)}
        places = {option: lines.get((name, option)) or lines.get(("DEFAULT", option)) for option in options}
        known = {option: place for option, place in places.items() if place is not None}
        found.append(_Section(name, options, known, lines.get((name, ""), (runfiles[0].name, 1))))
    return found, notes


def _parse(parser: configparser.RawConfigParser, runfile: Runfile) -> None:
    for at, written in enumerate(runfile.text.split("\n"), 1):
        if len(written) > _LONGEST:
            message = f"a line may have {_LONGEST} characters, and this one has {len(written)}"
            raise RunfileError(runfile.name, at, message)
    try:
        parser.read_string(runfile.text, runfile.name)
    except configparser.DuplicateSectionError as error:
        raise RunfileError(runfile.name, error.lineno, f"section [{error.section}] is defined already") from None
    except configparser.DuplicateOptionError as error:
        message = f"option {error.option!r} of [{error.section}] is defined already"
        raise RunfileError(runfile.name, error.lineno, message) from None
    except configparser.MissingSectionHeaderError as error:
        raise RunfileError(
            runfile.name, error.lineno, "no section begins before this line: write [DIR] first"
        ) from None
    except configparser.ParsingError as error:
        line = error.errors[0][0] if error.errors else None
        raise RunfileError(runfile.name, line, "this is neither a section nor `option = value`") from None
    except (configparser.Error, AttributeError) as error:  # the latter of a continuation of an option without value
        raise RunfileError(runfile.name, None, f"this is not a runfile: {error}") from None


def _places(text: str) -> Iterator[tuple[str, str, int]]:
    """Section, option, line: of each section's header (with no option) and of each option."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        if line[0].isspace():
            continue  # it continues a value
        if header := _HEADER.match(line):
            section = header["header"]
            yield section, "", number
        elif option := _OPTION.match(line):
            yield section, option["option"].strip().lower(), number


def _group(section: _Section, installed: Installed, testdir: str) -> tuple[Group | None, list[Absent]]:
    folder, _, identifier = section.name.partition(":")
    folder = _normal(folder, testdir)
    names = _strings(section, "tests")
    group, problem = _frame(section, folder, identifier, installed, testdir)
    for script in (group.pre, group.post):
        if problem is None and script is not None and posixpath.dirname(script.path) != folder:
            problem = f"{script.path} lies in another directory than the tests of the group, {folder}"
    if problem is not None:
        paths = tuple(posixpath.join(folder, name) for name in names)
        what = f"[{section.name}] is left out: {problem}"
        return None, [Absent(section.at("tests"), what, len(names), paths, _tags(section))]
    tests: list[Script] = []
    absent: list[Absent] = []
    for name in names:
        path = posixpath.join(folder, name)
        program = installed.program(path)
        if program is None:
            what = f"test {name} is left out: {installed.why_not(path)}"
            absent.append(Absent(section.at("tests"), what, 1, (path,), group.tags))
        else:
            tests.append(Script(path, _text(section, "user"), program, section.place("tests")[1]))
    return (replace(group, tests=tuple(tests)) if tests else None), absent


def _single(section: _Section, installed: Installed, testdir: str) -> tuple[Group | None, list[Absent]]:
    """A section without ``tests``: one test, whose own path it is. Its scripts' paths are as they are written."""
    path = _normal(section.name, testdir)
    group, problem = _frame(section, posixpath.dirname(path), "", installed, testdir)
    program = installed.program(path)
    if problem is None and program is None:
        problem = installed.why_not(path)
    if problem is not None or program is None:
        return None, [Absent(section.at(""), f"[{section.name}] is left out: {problem}", 1, (path,), _tags(section))]
    return replace(group, tests=(Script(path, _text(section, "user"), program, section.where[1]),)), []


def _frame(
    section: _Section, folder: str, identifier: str, installed: Installed, testdir: str
) -> tuple[Group, str | None]:
    """A group without its tests, and why it can't be run, where that is so."""
    scripts: dict[str, Script | None] = {}
    problem = None
    for role, below in (("pre", folder), ("post", folder), ("failsafe", testdir)):
        scripts[role] = None
        if written := _text(section, role):
            path = _normal(written, below)
            program = installed.program(path)
            if program is None:
                problem = problem or f"{role}: {installed.why_not(path)}"
            scripts[role] = Script(path, _text(section, f"{role}_user"), program or "", section.place(role)[1])
    for key in ("pre_user", "user", "post_user", "failsafe_user"):
        user = _text(section, key)
        if user and user not in installed.users:
            problem = problem or f"{key}: unknown user {user!r}"
    group = Group(
        section.name,
        (),
        scripts["pre"],
        scripts["post"],
        scripts["failsafe"],
        _timeout(section),
        _tags(section),
        identifier,
        line=section.where[1],
    )
    return group, problem


def _normal(path: str, below: str) -> str:
    return posixpath.normpath(posixpath.join(below, path))


def _text(section: _Section, option: str) -> str:
    return section.options.get(option, "").strip()


def _tags(section: _Section) -> tuple[str, ...]:
    return _strings(section, "tags") if "tags" in section.options else ()


def _timeout(section: _Section) -> float | None:
    written = section.options.get("timeout")
    if written is None:
        return _TIMEOUT
    try:
        seconds = int(written or 0)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _MOST_TIMEOUT:
        raise section.fail("timeout", f"{written!r} is not a number of seconds; 0 is for no time-out")
    return float(seconds) or None


def _boolean(section: _Section, option: str) -> bool:
    written = section.options.get(option, "False").strip().lower()
    if written not in configparser.RawConfigParser.BOOLEAN_STATES:
        raise section.fail(option, f"{written!r} is neither True nor False")
    return configparser.RawConfigParser.BOOLEAN_STATES[written]


def _strings(section: _Section, option: str) -> tuple[str, ...]:
    """A list of strings, written as a literal; an empty value is none."""
    written = section.options[option].strip()
    if not written:
        return ()
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        value = None
    if isinstance(value, str):  # ('one') without a comma, which upstream's eval takes letter by letter
        value = None
    if not isinstance(value, list | tuple | set) or not all(isinstance(each, str) for each in value):
        raise section.fail(option, "it must be a list of strings, such as ['first', 'second']")
    for each in value:
        if not each or "\0" in each or "\n" in each:
            raise section.fail(option, f"{each!r} can't be a name")
    return tuple(dict.fromkeys(value)) if isinstance(value, list | tuple) else tuple(sorted(value))
