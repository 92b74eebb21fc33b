"""A run of a suite as KTAP: groups, their tests, and the subtests that these printed themselves."""

from __future__ import annotations

from storlab.reading import open_file
from storlab.suites.model import Outcome
from storlab.suites.report.no_result import tests_without_result
from storlab.suites.report.view import Row, View
from storlab.suites.texts.ktap import MOST_JUDGED, Result, ktap_text, read_ktap


def render_ktap(view: View) -> str:
    """Tests that have no result fail; a failure that was expected is ``TODO``, which for KTAP's readers is none."""
    groups: dict[str, list[Result]] = {}
    for row in view.rows:
        if row.attempt.role == "test" or row.surprising:
            groups.setdefault(row.attempt.group, []).append(_result(row, view))
    for group, missing in tests_without_result(view).items():
        groups.setdefault(group, []).extend(Result(name, Outcome.FAIL, why) for name, why in missing.items())
    whole = [Result(group, _of(results), "", tuple(results)) for group, results in groups.items()]
    return "\n".join(ktap_text(whole)) + "\n"


def _of(results: list[Result]) -> Outcome:
    failed = any(each.outcome is Outcome.FAIL and not each.todo for each in results)
    return Outcome.FAIL if failed else Outcome.PASS


def _result(row: Row, view: View) -> Result:
    outcome = row.attempt.outcome.classic
    if outcome is Outcome.KILLED or (outcome is Outcome.PASS and row.surprising):
        outcome = Outcome.FAIL
    subtests = _printed(row, view) if view.run.asked.adapter == "ktap" else ()
    expected = row.why if outcome is Outcome.FAIL and not row.surprising else ""
    return Result(row.name, outcome, row.why, subtests, todo=expected)


def _printed(row: Row, view: View) -> tuple[Result, ...]:
    try:
        with open_file(view.run.folder / row.attempt.folder / "stdout") as file:
            data = file.read(MOST_JUDGED)
    except OSError:
        return ()
    found = read_ktap(data.decode(errors="replace").splitlines())
    return found.subtests if found is not None else ()
