"""What ``storlab suite history`` says."""

from __future__ import annotations

from collections.abc import Iterator

from storlab.report.language.format import duration, plural
from storlab.suites.history.history import History, TestHistory
from storlab.suites.report.pages.changes import counts_document, gaps, last
from storlab.suites.report.pages.page import Page, Table


def history_page(history: History, everything: bool) -> Page:
    """Flaky tests first; tests that always pass only where ``everything`` is asked for."""
    runs = plural(len(history.runs), "run")
    where = f" in {plural(len(history.environments), 'environment')}" if len(history.environments) > 1 else ""
    counts = [(len(history.flaky), "flaky"), (len(history.failing), "always failed"), (len(history.skipped), "skipped")]
    counts += [(len(history.passing), "always passed")]
    said = ", ".join(f"{count} {word}" for count, word in counts if count) or "no results"
    return Page(
        title=f"Tests over {runs}",
        answer=f"{runs}{where}: {said}.",
        tables=tuple(_tables(history, everything)),
        notes=tuple(_notes(history, everything)),
        counts=tuple((word, count) for count, word in counts if count),
        document={
            "runs": [{"run": run.name, "environment": str(run.environment)} for run in history.runs],
            "tests": [_document(each) for each in history.tests],
        },
    )


def _tables(history: History, everything: bool) -> Iterator[Table]:
    several = len(history.environments) > 1
    shown = [("Flaky", history.flaky, "known", "Their outcomes differ within one environment.")]
    shown += [("Always failed", history.failing, "bad", ""), ("Never ran", history.skipped, "", "")]
    shown += [("Always passed", history.passing, "good", "")] if everything else []
    for title, tests, tone, intro in shown:
        if tests:
            columns = ("test", "passed", "rate", "95 % interval", "last", "time", *(["environment"] if several else []))
            rows = tuple(_row(each, several) for each in tests)
            yield Table(title, columns, rows, intro, frozenset({1, 2, 3, 5}), tone)


def _row(each: TestHistory, several: bool) -> tuple[str, ...]:
    counts = each.counts
    known = each.rate is not None
    return (
        each.test,
        f"{counts.passed} of {counts.decided}" if known else "",
        share(each.rate) if each.rate is not None else "",
        f"{share(each.low)} to {share(each.high)}" if known else "",
        last(counts),
        duration(each.seconds) if each.seconds is not None else "",
        *([str(each.environment)] if several else []),
    )


def share(value: float) -> str:
    """In per cent; what is not all or nothing never looks as if it were."""
    rounded = round(value * 100)
    if rounded in (0, 100) and value not in (0.0, 1.0):
        return "> 99 %" if value > 0.5 else "< 1 %"
    return f"{rounded} %"


def _notes(history: History, everything: bool) -> Iterator[str]:
    yield from gaps(history.runs)
    if history.passing and not everything:
        yield f"{plural(len(history.passing), 'test')} that always passed: --all shows them."
    if len(history.environments) == 1:
        known = str(history.environments[0])
        yield f"{known[0].upper()}{known[1:]}."
    if len(history.runs) == 1:
        yield "One run says nothing about flakiness, except where a retry came out differently."


def _document(each: TestHistory) -> dict[str, object]:
    return {
        "test": each.test,
        "environment": each.environment.parts,
        "flaky": each.flaky,
        **counts_document(each.counts),
        "pass_rate": each.rate,
        "low": each.low,
        "high": each.high,
        "seconds": each.seconds,
        "last": str(each.counts.last),
        "last_run": each.last,
    }
