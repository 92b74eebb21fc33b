"""A run of a suite as KTAP: groups, their tests, and the subtests that these printed themselves."""

from __future__ import annotations

from storlab.reading import read_file
from storlab.report.suite.view import Row, View
from storlab.suite.ktap import Result, ktap_text, read_ktap
from storlab.suite.model import Outcome

_MOST = 16 * 1024**2  # bytes of what a test printed


def render_ktap(view: View) -> str:
    """Tests that have no result fail; a failure that was expected is ``TODO``, which for KTAP's readers is none."""
    groups: dict[str, list[Result]] = {}
    for row in view.rows:
        if row.attempt.role == "test" or row.surprising:
            groups.setdefault(row.attempt.group, []).append(_result(row, view))
    for group, path in view.without_result:
        groups.setdefault(group, []).append(Result(path, Outcome.FAIL, "it has no result"))
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
        data = read_file(view.run.folder / row.attempt.folder / "stdout", _MOST)
    except OSError:
        return ()
    found = read_ktap(data.decode(errors="replace").splitlines())
    return found.subtests if found is not None else ()
