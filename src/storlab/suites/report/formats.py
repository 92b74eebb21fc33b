"""Reports in any format, among them those that programs read: JSON, KTAP, JUnit's XML, and text of plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from xml.etree import ElementTree

import msgspec

from storlab.base.errors import UserError
from storlab.base.text import grouped, one_line, plain
from storlab.report.document import Block, Document, Group, Sentences, Table
from storlab.report.formats.markdown import render_markdown
from storlab.suites.ktap import Result, ktap_text, printed_in, read_ktap
from storlab.suites.model import Outcome
from storlab.suites.records.folder import SuiteRun
from storlab.suites.report.documents import run_document
from storlab.suites.report.view import Row, View, tests_without_result, view_of
from storlab.suites.zts_text import console_line, report, summary

_MOST = 50  # lines or rows of a kind; the other formats have all


def render_text(document: Document, *, answer_last: bool = False, titled: bool = True) -> str:
    """Plain lines, however long: people search them, and programs of theirs read them.

    ``answer_last``: it stands where the prompt comes.
    """
    title, answer = [one_line(document.title)] if titled else [], ["", *_lines(document.head, "")]
    sections = []
    for each in document.sections:
        heads = ["", one_line(each.title)] if each.titled else [""]
        sections += [*heads, *_lines(each.blocks, "  " if each.titled else "")]
    return "\n".join([*title, *sections, *answer] if answer_last else [*title, *answer, *sections]) + "\n"


def _lines(blocks: Iterable[Block], indent: str) -> Iterator[str]:
    for block in blocks:
        match block:
            case Sentences():
                yield from _some([one_line(line.text) for line in block.lines], indent)
            case Table():
                (_, *columns), rows = block.texts()
                cells = [[one_line(cell) for cell in row] for row in (columns, *rows)]
                widths = [max(map(len, column)) for column in zip(*cells[: _MOST + 1], strict=True)]
                shown = (
                    "  ".join(
                        cell.rjust(width) if block.is_number(number) else cell.ljust(width)
                        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
                    ).rstrip()
                    for row in cells
                )
                yield from (indent + next(shown), *_some(list(shown), indent))
            case Group():
                yield from ([indent + one_line(block.title)] if block.title else [])
                yield from _lines(block.blocks, f"{indent}  ")


def _some(lines: list[str], indent: str) -> Iterator[str]:
    yield from (indent + line for line in lines[:_MOST])
    if len(lines) > _MOST:
        yield f"{indent}and {len(lines) - _MOST} more"


def render_zts(view: View) -> str:
    """What the ZFS Test Suite's own runner and its report would have printed, but for times."""
    run = view.run
    shown = [each for each in run.attempts if each.role != "failsafe"]
    lines = "".join(console_line(each, run.asked.runner) for each in shown)
    return lines + summary(run.attempts, run.seconds, str(run.folder)) + report(shown, run.expectations)


def to_json(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def render_json(view: View) -> str:
    run = view.run
    document = {
        "suite": run.asked.name,
        "run": str(run.folder),
        "started": run.started.isoformat(),
        "finished": run.finished.isoformat() if run.finished else None,
        "seconds": run.seconds,
        "answer": view.answer,
        "counts": {str(outcome): count for outcome, count in view.counts.items()},
        "unexpected": [row.name for row in view.unexpected],
        "without_result": [{"group": group, "test": path} for group, path in view.run.without_result],
        "absent": [str(each) for each in run.asked.absent],
        "other_environments": view.environments,
        "results": [_result(row) for row in view.rows],
    }
    return to_json(document)


def _result(row: Row) -> dict[str, object]:
    fields = {name: getattr(row.attempt, name) for name in row.attempt.__struct_fields__}
    expectation = row.expectation.reason if row.expectation else None
    return {**fields, "name": row.name, "unexpected": row.surprising, "expected_for": expectation, "said": row.said}


def _groups(view: View) -> dict[str, list[Row]]:
    """Tests, and scripts around them that did not end as expected."""
    return grouped((row.attempt.group, row) for row in view.rows if row.attempt.role == "test" or row.surprising)


def render_junit(view: View) -> str:
    """One ``testsuite`` a group, in the schema of Jenkins' xUnit plugin; what was expected is no failure there."""
    groups = _groups(view)
    missing = tests_without_result(view)
    root = ElementTree.Element("testsuites", name=plain(view.run.asked.name), time=f"{view.run.seconds:.3f}")
    for group in dict.fromkeys([*groups, *missing]):
        _suite(root, group, groups.get(group, []), missing.get(group, {}))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, group: str, rows: list[Row], missing: dict[str, str]) -> None:
    kinds = [_kind(row) for row in rows] + ["error"] * len(missing)
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=plain(group),
        tests=str(len(kinds)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{sum(row.attempt.elapsed for row in rows):.3f}",
    )
    for row in rows:
        time = f"{row.attempt.elapsed:.3f}"
        case = ElementTree.SubElement(suite, "testcase", classname=plain(group), name=plain(row.name), time=time)
        if kind := _kind(row):
            says = plain(f"{row.attempt.outcome}{f': {row.why}' if row.why else ''}")
            how: dict[str, str] = {} if kind == "skipped" else {"type": str(row.attempt.outcome)}
            ElementTree.SubElement(case, kind, {"message": says, **how})
    for name, why in missing.items():
        case = ElementTree.SubElement(suite, "testcase", classname=plain(group), name=plain(name), time="0.000")
        ElementTree.SubElement(case, "error", message=plain(why), type="NO RESULT")


def _kind(row: Row) -> str:
    """The element that says what came of it; none if it passed. What is lost or ended by force is an error."""
    if row.surprising:
        return "error" if row.attempt.outcome in (Outcome.CRASHED, Outcome.HUNG, Outcome.KILLED) else "failure"
    return "" if row.attempt.outcome is Outcome.PASS else "skipped"


def render_ktap(view: View) -> str:
    """Tests that have no result fail; a failure that was expected is ``TODO``, which for KTAP's readers is none."""
    groups = {group: [_ktap_result(row, view) for row in rows] for group, rows in _groups(view).items()}
    for group, missing in tests_without_result(view).items():
        groups.setdefault(group, []).extend(Result(name, Outcome.FAIL, why) for name, why in missing.items())
    bad = {group for group, each in groups.items() if any(r.outcome is Outcome.FAIL and not r.todo for r in each)}
    outcomes = {True: Outcome.FAIL, False: Outcome.PASS}
    whole = [Result(group, outcomes[group in bad], "", tuple(results)) for group, results in groups.items()]
    return "\n".join(ktap_text(whole)) + "\n"


def _ktap_result(row: Row, view: View) -> Result:
    outcome = row.attempt.outcome.classic
    if outcome is Outcome.KILLED or (outcome is Outcome.PASS and row.surprising):
        outcome = Outcome.FAIL
    found = None
    if view.run.asked.adapter == "ktap":
        with suppress(OSError):
            found = read_ktap(printed_in(view.run.folder / row.attempt.folder).splitlines())
    expected = row.why if outcome is Outcome.FAIL and not row.surprising else ""
    return Result(row.name, outcome, row.why, found.subtests if found is not None else (), todo=expected)


def render(run: SuiteRun, format_: str, *, brief: bool = False) -> str:
    """The report. ``brief``: of the text, without what was printed while it ran. Raises ``UserError``."""
    view = view_of(run)
    match format_:
        case "text":
            return render_text(run_document(view, brief=brief), answer_last=True, titled=not brief)
        case "zts":
            return render_zts(view)
        case "junit":
            return render_junit(view)
        case "ktap":
            return render_ktap(view)
        case "json":
            return render_json(view)
        case "html":
            return render_document(run_document(view, run.last_words), {}, format_)
        case "md":
            return render_document(run_document(view), {}, format_)
    raise UserError(f"there is no format {format_}")


def render_document(document: Document, data: object, format_: str) -> str:
    """``data``: the same for programs. Raises ``UserError`` if there is no such format."""
    match format_:
        case "text":
            return render_text(document)
        case "md":
            return render_markdown(document)
        case "html":
            from storlab.report.formats.html import render_html  # with Jinja

            return render_html(document)
        case "json":
            return to_json(data)
    raise UserError(f"--format {format_}: it is one of text, md, html, json")
