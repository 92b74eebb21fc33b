"""What is expected of a suite's tests: the tables ``known`` and ``maybe`` of ``zts-report.py``, read and never run.

They are Python: assignments of names and of dictionaries, and updates of these below ``sys.platform.startswith``. The
source is parsed and only its literals are taken, so whatever else it would do is not done.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from storlab.errors import ParseError
from storlab.suites.model import Attempt, Expectation, Expectations, Outcome

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
    """What was expected of a result other than PASS, where it was; ``None`` where it is news.

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
