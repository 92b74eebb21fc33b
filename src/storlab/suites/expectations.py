"""What is expected of a suite's tests: by the tables ``known`` and ``maybe`` of ``zts-report.py``, and by users' lists.

The tables are Python: assignments of names and of dictionaries, and updates of these below
``sys.platform.startswith``. The source is parsed and only its literals are taken, so whatever else it would do is not
done. What a user's list in TOML says of a test counts in their place. An entry may hold until a day, and for some
kernels or versions of ZFS only, so that nothing is excused for ever.
"""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct
from pydantic import Field, field_validator

from storlab.base.errors import ParseError
from storlab.base.reach import Pattern, Prose
from storlab.model import Model
from storlab.suites.model import Attempt, Expectation, Expectations, Outcome, SuiteEnvironment
from storlab.suites.selection import matches

PLATFORM = "linux"
_TABLES = ("known", "maybe")
_ISSUES = "https://github.com/openzfs/zfs/issues/"
NOT_APPLICABLE = "Not applicable"
"""With this reason, ``zts-report.py`` says nothing of a test."""


def read_expectations(source: str, name: str) -> Expectations:
    """What the text of a ``zts-report.py`` expects on Linux. Raises ``ParseError`` with file and line."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ParseError(f"it is not Python: {getattr(error, 'msg', error)}", name, line) from None
    names: dict[str, object] = {}
    tables: dict[str, dict[str, Expectation]] = {table: {} for table in _TABLES}
    for statement in _here(tree.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=table)], value=ast.Dict() as value) if table in tables:
                tables[table] = _table(value, names, table, name)
            case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Constant(value=literal)):
                names[constant] = literal
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="update"), args=[ast.Dict() as value])
            ) if table in tables:
                tables[table] |= _table(value, names, table, name)
    if not any(tables.values()):
        raise ParseError("it has neither a table `known` nor one `maybe`", name)
    return Expectations(tables["known"], tables["maybe"], name)


def _here(statements: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Those that hold on Linux: of conditions on ``sys.platform``, the branch that is taken there."""
    for statement in statements:
        if isinstance(statement, ast.If) and (prefix := _platform(statement.test)) is not None:
            yield from _here(statement.body if PLATFORM.startswith(prefix) else statement.orelse)
        else:
            yield statement


def _platform(test: ast.expr) -> str | None:
    match test:
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="platform"), attr="startswith"),
            args=[ast.Constant(value=str(prefix))],
        ):
            return prefix
    return None


def _table(table: ast.Dict, names: Mapping[str, object], which: str, source: str) -> dict[str, Expectation]:
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        match key, value:
            case ast.Constant(value=str(test)), ast.List(elts=[ast.Constant(value=str(outcome)), reason]):
                words = _reason(reason, names)
                if outcome not in Outcome.__members__ or words is None:
                    raise ParseError(f"the entry of {test!r} can't be understood", source, value.lineno)
                found[test] = Expectation(test, Outcome[outcome], words, which == "known")
            case _:
                raise ParseError(
                    f"an entry of `{which}` is not of the form 'test': ['outcome', reason]", source, value.lineno
                )
    return found


def _reason(node: ast.expr, names: Mapping[str, object]) -> str | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(number)):
            return f"{_ISSUES}{number}"
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if isinstance(names.get(name), str):
            return str(names[name])
    return None


def expected(attempt: Attempt, name: str, expectations: Expectations) -> Expectation | None:
    """What was expected of a result other than PASS, if it was; ``None`` if it is news.

    ``name``: as the tables have it. A test that is skipped because its group's set-up may be skipped is expected, too.
    """
    outcome = attempt.outcome.classic
    tables = (expectations.known, expectations.maybe)
    if outcome is Outcome.SKIP:
        setup = str(PurePosixPath(name).with_name("setup"))
        for table in tables:
            if setup != name and setup in table and table[setup].outcome is Outcome.SKIP:
                return table[setup]
    return next((table[name] for table in tables if name in table and table[name].outcome == outcome), None)


def is_surprising_pass(attempt: Attempt, name: str, expectations: Expectations) -> bool:
    return attempt.outcome is Outcome.PASS and name in expectations.known


class OwnEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry as it is recorded with a run. ``until``: its last day, in ISO form; empty texts are for any."""

    tests: tuple[str, ...]
    outcome: Outcome
    reason: str
    always: bool = False
    until: str = ""
    kernel: Pattern = ""
    zfs: Pattern = ""

    def __str__(self) -> str:
        return f"{', '.join(self.tests)} ({self.outcome}, {self.reason})"

    def holds_in(self, environment: SuiteEnvironment | None) -> bool:
        """Whether it is about these guests; if nothing is known of them, only an entry for any is."""
        known = environment or SuiteEnvironment()
        wanted = ((self.kernel, known.kernel), (self.zfs, known.modules.get("zfs", "")))
        return all(fnmatchcase(has, pattern) for pattern, has in wanted if pattern)

    def is_over(self, day: dt.date) -> bool:
        return bool(self.until) and dt.date.fromisoformat(self.until) < day


class ExpectationTable(Model):
    """One entry of the list."""

    tests: Pattern | list[Pattern] = Field(
        description="which tests: patterns such as `zpool_trim/*`, as for `--test`; their `pre` and `post` scripts, too"
    )
    outcome: Literal["FAIL", "SKIP", "KILLED"] = Field(
        description="what they may end with; `KILLED` is also for a guest that crashed or hung"
    )
    reason: Prose = Field(min_length=1, description="why, such as the address of an issue; reports show it")
    always: bool = Field(False, description="a PASS would be unexpected, too")
    until: dt.date | None = Field(None, description="the last day on which it applies, such as `2027-01-31`")
    kernel: Pattern = Field("", description="only for kernels whose release matches this pattern, such as `6.12.*`")
    zfs: Pattern = Field("", description="only for versions of ZFS that match this pattern, such as `2.3.*`")

    @field_validator("tests")
    @classmethod
    def _some(cls, tests: str | list[str]) -> str | list[str]:
        if not tests or not all(tests):
            raise ValueError('name at least one test, or a pattern such as "zpool_trim/*"')
        return tests

    def entry(self) -> OwnEntry:
        tests = (self.tests,) if isinstance(self.tests, str) else tuple(self.tests)
        until = "" if self.until is None else self.until.isoformat()
        reason = " ".join(self.reason.split())
        return OwnEntry(tests, Outcome[self.outcome], reason, self.always, until, self.kernel, self.zfs)


class ExpectationFile(Model):
    """The whole file."""

    expect: list[ExpectationTable] = Field(
        min_length=1, description="the entries; of those about a test the first counts"
    )

    def entries(self) -> tuple[OwnEntry, ...]:
        return tuple(table.entry() for table in self.expect)


def with_own(
    tables: Expectations,
    own: Sequence[OwnEntry],
    scripts: Iterable[tuple[str, str]],
    environment: SuiteEnvironment | None,
    day: dt.date,
) -> Expectations:
    """The suite's tables with what the user's list says instead. ``scripts``: each path with its name in the tables."""
    valid = [entry for entry in own if entry.holds_in(environment) and not entry.is_over(day)]
    known, maybe = dict(tables.known), dict(tables.maybe)
    for path, name in scripts:
        entry = next((entry for entry in valid if _is_about(entry, path)), None)
        if entry is not None:
            known.pop(name, None)
            maybe.pop(name, None)
            (known if entry.always else maybe)[name] = Expectation(name, entry.outcome, entry.reason, entry.always)
    return replace(tables, known=known, maybe=maybe)


def notes_on(own: Sequence[OwnEntry], paths: Sequence[str], day: dt.date) -> Iterator[str]:
    """What is to be said of a list: entries that are over, and those that no test of the run is meant by."""
    for entry in own:
        if entry.is_over(day):
            yield f"not expected any more, its last day was {entry.until}: {entry}"
        elif not any(_is_about(entry, path) for path in paths):
            yield f"matches no test of this run: {entry}"


def _is_about(entry: OwnEntry, path: str) -> bool:
    return any(matches(path, pattern) for pattern in entry.tests)
