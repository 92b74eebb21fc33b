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

from storlab.base.errors import UserError
from storlab.suites.groups import ROLES, USERS, Builder, Installed, Written, WrittenTest
from storlab.suites.model import Suite

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
    builder = Builder(installed, testdir, by_path=True)
    for section in sections:
        _add(section, builder, testdir)
    quiet = any(_is_quiet(section) for section in sections)
    return replace(builder.suite(name), quiet=quiet, notes=tuple(notes))


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


def _add(section: _Section, builder: Builder, testdir: str) -> None:
    """A section without ``tests`` is one test, whose own path it is. Its scripts' paths are as they are written."""
    single = "tests" not in section.options
    folder, _, identifier = section.name.partition(":")
    place = posixpath.normpath(posixpath.join(testdir, section.name if single else folder))
    key = "" if single else "tests"
    where, line = section.at(key), section.place(key)[1]
    if single:
        identifier, folder = "", posixpath.dirname(place)
        tests = [WrittenTest(section.name, place, where, line)]
    else:
        folder = place
        names = _strings(section, "tests")
        tests = [WrittenTest(name, posixpath.join(folder, name), where, line) for name in names]
    says = {key: section.options.get(key, "").strip() for key in (*ROLES, *USERS)}
    problem = ""
    for role in ("pre", "post"):
        path = posixpath.normpath(posixpath.join(folder, says[role]))
        if says[role] and not single and posixpath.dirname(path) != folder:
            problem = problem or f"{path} lies in another directory than the tests of the group, {folder}"
    written = Written(
        section.name,
        f"[{section.name}]",
        where,
        folder,
        says,
        _timeout(section),
        _strings(section, "tags") if "tags" in section.options else (),
        identifier,
        section.where[1],
        lambda role: section.place(role)[1],
        single,
    )
    builder.add(written, tests, problem)


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


def _is_quiet(section: _Section) -> bool:
    written = section.options.get("quiet", "False").strip().lower()
    if written not in configparser.RawConfigParser.BOOLEAN_STATES:
        raise section.fail("quiet", f"{written!r} is neither True nor False")
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
