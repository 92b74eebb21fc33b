"""What is said of a run of a suite, of a comparison of runs, and of many runs: documents that every format visits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from storlab.base.text import grouped
from storlab.report.document import (
    Block,
    Cell,
    Code,
    Document,
    Group,
    Line,
    Section,
    Sentences,
    Table,
    Tone,
    said,
    section,
)
from storlab.report.language.format import duration, plural
from storlab.suites.comparing import LEVEL, Change, Comparison, TestChange
from storlab.suites.history import Counts, History, TestHistory
from storlab.suites.model import Attempt, ObservedRun, Outcome
from storlab.suites.report.view import Row, View

_MOST = 60  # tests whose last words are shown
_BAD: tuple[str, Tone] = ("✗", "worse")
_KNOWN: tuple[str, Tone] = ("~", "undecided")
_TONES: dict[Outcome, tuple[str, Tone]] = {Outcome.PASS: ("✓", "passed"), Outcome.SKIP: ("−", "soft")}
_RESULTS = ("script", "outcome", "time", "CPU", "user", "guest", "why")
_SHOWN = {
    Change.REGRESSED: ("Regressed", ""),
    Change.UNDECIDED: ("Undecided", "They came out differently, which flakiness alone may explain."),
    Change.MISSING: ("Missing", "They had a result before, and none after."),
    Change.FLAKY: ("Flaky", "They pass and fail on one side, and no change is established."),
    Change.FIXED: ("Fixed", ""),
    Change.NEW: ("New", ""),
}
_HISTORY = {
    "flaky": ("flaky", "Flaky", "Their outcomes differ within one environment."),
    "failing": ("always failed", "Always failed", ""),
    "skipped": ("skipped", "Never ran", ""),
    "passing": ("always passed", "Always passed", ""),
}
_COLUMNS = ("test", "before", "after", "chance", "to decide")
_WORDS = ("before", "after", "to decide", "last", "environment", "outcome", "user", "guest", "why")


def run_document(view: View, printed: Callable[[Attempt], str] | None = None, *, brief: bool = False) -> Document:
    """``brief``: without what was printed while it ran. ``printed``: the end of what a script said, for a format that
    can fold it, which then has all results, too.
    """
    asked = view.run.asked
    unexpected = [_list(map(_line, view.unexpected))] if printed is None else [*_told(view, printed)]
    known, skipped = ((), ()) if brief else (view.known, view.skipped)
    shown = {id(row) for rows in (view.unexpected, known, skipped) for row in rows}
    cut = [row for row in view.rows if row.not_kept and id(row) not in shown and printed is None]
    at = f"{view.run.started:%Y-%m-%d %H:%M} UTC · {plural(asked.guests, 'guest')} · {view.run.folder.name}"
    leaks: list[Block | None] = [_list(f"{name}: {what}" for name, what in view.leaks)]
    if view.leaks:
        leaks[:0] = said("What scripts changed and had not restored once their group was cleaned up.")
    return Document(
        f"Suite {asked.name}",
        (
            *said("" if printed is None else at, tone="soft"),
            *said(view.answer, tone="strong"),
            *said(view.counted, view.patience, view.run.stopped),
        ),
        (
            *section("unexpected", "Not expected", *unexpected),
            *section("missing", "No result", _list(view.missing)),
            *section("absent", "Not run, because it was not found", _list(map(str, asked.absent))),
            *section("flaky", "Passed at a later try only", _list(map(_line, view.flaky))),
            *section("leaks", "Left behind", *leaks),
            *section("cut", "Output that was not kept", _list(f"{row.name}: {row.not_kept}" for row in cut)),
            *section("known", "Expected, though they did not pass", _list(map(_line, known))),
            *section("skipped", "Skipped", _list(map(_line, skipped))),
            *section("entries", "Entries of the list of expectations", _list(view.notes)),
            *section(
                "environments",
                "Guests that differ from the first, by whose environment the run is recorded",
                _list(view.environments),
            ),
            *(section("results", "Results", *_results(view)) if printed is not None else ()),
        ),
    )


def _list(texts: Iterable[str]) -> Sentences | None:
    lines = tuple(Line(text, "·") for text in texts)
    return Sentences(lines) if lines else None


def _line(row: Row) -> str:
    why = f": {row.why}" if row.why else ""
    return f"{row.attempt.outcome:7} {row.name} ({duration(row.attempt.elapsed)}){why}"


def _told(view: View, printed: Callable[[Attempt], str]) -> Iterator[Block]:
    """Each that was not expected with the end of what it printed; of very many, the first."""
    for row in view.unexpected[:_MOST]:
        at = f", {row.attempt.guest}" if row.attempt.guest else ""
        words = printed(row.attempt)
        blocks: list[Block] = [*said(row.why), *([Code(words, "The end of what it printed")] if words else [])]
        blocks += said(row.attempt.folder, tone="soft")
        title = f"{row.attempt.outcome} {row.name} ({duration(row.attempt.elapsed)}{at})"
        yield Group(title, tuple(blocks)) if blocks else Sentences((Line(title, "·"),))
    if (more := len(view.unexpected) - _MOST) > 0:
        yield from said(f"{more} more are among the results below.")


def _results(view: View) -> Iterator[Group]:
    groups = grouped((row.attempt.group, row) for row in view.rows)
    for name, rows in groups.items():
        bad = sum(row.surprising for row in rows)
        title = f"{name}: {plural(len(rows), 'script')}{f', {bad} not expected' if bad else ''}"
        cells = tuple(
            (
                row.name,
                _outcome(row),
                duration(row.attempt.elapsed),
                duration(row.attempt.cpu),
                row.attempt.user,
                row.attempt.guest,
                row.why,
            )
            for row in rows
        )
        yield Group(title, (Table("", _RESULTS, cells, words=_WORDS),), folded=not bad and len(groups) > 8)


def _outcome(row: Row) -> Cell:
    mark, tone = _BAD if row.surprising else _TONES.get(row.attempt.outcome, _KNOWN)
    return Cell(f"{mark} {row.attempt.outcome}", tone=tone)


def changes_document(found: Sequence[Comparison], notes: Sequence[str]) -> Document:
    several = len(found) > 1
    sections = [each for number, one in enumerate(found, 1) for each in _changes(one, f"-{number}" if several else "")]
    return Document(
        f"Suites: {found[0].before.label} and {', '.join(each.after.label for each in found)}",
        said(" ".join(_answer(each, several) for each in found), tone="strong"),
        (*sections, *_about((*notes, *(note for each in found for note in _notes(each))))),
    )


def _about(notes: Iterable[str]) -> tuple[Section, ...]:
    return section("notes", "Notes", *said(*notes), titled=False)


def _answer(found: Comparison, several: bool) -> str:
    counted = [(len(found.of(change)), str(change)) for change in _SHOWN if found.of(change)]
    same = len(found.of(Change.UNCHANGED))
    said = ", ".join(f"{count} {word}" for count, word in counted)
    begin = f"{found.after.label}: " if several else ""
    if not found.compared:
        return f"{begin}{said + '. ' if said else ''}No test passed or failed on both sides, so nothing was compared."
    verdict = said or "no test differs"
    return f"{begin}{verdict[0].upper()}{verdict[1:]}{f', {same} unchanged' if said and same else ''}."


def _changes(found: Comparison, which: str) -> Iterator[Section]:
    where = f" in {found.after.label}" if which else ""
    for change, (title, intro) in _SHOWN.items():
        if tests := found.of(change):
            rows = sorted(tests, key=lambda each: (each.chance if each.chance is not None else 1.0, each.test))
            cells = tuple(map(_row, rows))
            table = Table("", _COLUMNS, cells, words=_WORDS)
            # What no row has anything in is left out.
            kept = [number for number in range(len(_COLUMNS)) if number < 3 or any(row[number] for row in cells)]
            yield from section(
                f"{change}{which}".replace(" ", "-"), title + where, *said(intro), table.of_columns(kept)
            )
    if found.times.changed:
        rows_ = tuple((e.test, duration(e.before), duration(e.after), f"{e.ratio:.2f}×") for e in found.times.changed)
        intro = "Ratios are relative to the other tests of the same runs, so a busy machine does not count as a change."
        table = Table("", ("test", "before", "after", "takes"), rows_)
        yield from section(f"times{which}", f"Times that changed{where}", *said(intro), table)


def _row(each: TestChange) -> tuple[str, ...]:
    more = ""
    if each.change is Change.UNDECIDED:
        more = f"{plural(each.more, 'more run')} of each side" if each.more is not None else "many runs"
    return each.test, counted(each.before), counted(each.after), chance(each.chance), more


def counted(counts: Counts) -> str:
    runs = counts.decided + counts.skipped
    if runs == 0:
        return "no result"
    if runs == 1:
        return last(counts)
    parts = [f"{counts.failed} of {counts.decided} failed" if counts.failed else f"{counts.passed} passed"]
    parts = parts if counts.decided else []
    parts += [f"{counts.skipped} skipped"] if counts.skipped else []
    return ", ".join(parts)


def last(counts: Counts) -> str:
    return f"{counts.last}, then PASS" if counts.last_wavered and counts.last != "PASS" else str(counts.last)


def chance(value: float | None) -> str:
    """A probability in per cent: two digits, and none below one in a million."""
    if value is None:
        return ""
    return "< 0.0001 %" if value < 1e-6 else f"{float(f'{value * 100:.2g}'):g} %"


def gaps(runs: Iterable[ObservedRun]) -> Iterator[str]:
    for run in runs:
        for gap in run.gaps:
            few = ", ".join(gap.names[:5]) + (f" and {len(gap.names) - 5} more" if len(gap.names) > 5 else "")
            match gap.kind:
                case "no result":
                    yield f"{run.name} has no result of {plural(gap.count, 'test')} that it names: {few}."
                case "planned":
                    yield f"{run.name} lacks {plural(gap.count, 'result')} that it announces."
                case "bailed out":
                    yield f"{run.name} ends with Bail out!, so later tests may be missing."
                case "no summary":
                    yield f"{run.name} ends before the summary of check, so tests may be missing."
                case "stray":
                    lines = "its lines are incomplete or repeated, so names may be wrong"
                    yield f"{run.name} has {plural(gap.count, 'result')} out of order: {lines}."
                case "no end":
                    yield f"{run.name} ends within a line, so the last result may be incomplete."
                case "no section":
                    yield f"{run.name} lacks a SECTION line, so tests may be of another section."


def _notes(found: Comparison) -> Iterator[str]:
    yield from gaps(run for side in (found.before, found.after) for run in side.runs)
    left = len(found.of(Change.LEFT_OUT))
    if left:
        were = "was" if left == 1 else "were"
        yield f"{plural(left, 'test')} of {found.before.label} {were} not to be run in {found.after.label}."
    if found.of(Change.UNDECIDED) or found.of(Change.REGRESSED) or found.of(Change.FIXED):
        yield (
            "Chance: how likely flakiness alone is to make so large a difference, judging by the runs on both sides. "
            f"Of the tests reported as regressed, at most {LEVEL * 100:.0f} % are expected to be so by chance, and "
            "likewise of those fixed."
        )
    if found.of(Change.UNDECIDED) and found.worse + found.better > 1:
        yield (
            f"In {plural(found.worse, 'group')} tests got worse and in {found.better} better; flakiness alone would be "
            f"as one-sided, either way, with a probability of {chance(found.one_sided)}."
        )
    if found.earlier:
        count = "counts" if found.earlier == 1 else "count"
        yield f"{plural(found.earlier, 'earlier run')} of the history {count} with {found.before.label}."
    environments = {str(run.environment) for side in (found.before, found.after) for run in side.runs}
    if len(environments) > 1:
        yield f"The runs differ in their environment: {'; '.join(sorted(environments))}."
    overall = found.times.overall
    if overall is not None and not 0.9 < overall < 1.1:
        yield f"In the median over all tests, {found.after.label} took {overall:.2f} times as long."


def changes_data(found: Sequence[Comparison], notes: Sequence[str]) -> dict[str, object]:
    """For programs."""
    return {"notes": list(notes), "comparisons": [_data(each) for each in found]}


def _data(found: Comparison) -> dict[str, object]:
    return {
        "before": {"label": found.before.label, "runs": [run.name for run in found.before.runs]},
        "after": {"label": found.after.label, "runs": [run.name for run in found.after.runs]},
        "history": found.earlier,
        "counts": {str(change): len(found.of(change)) for change in Change},
        "false_discovery_rate": LEVEL,
        "groups": {"worse": found.worse, "better": found.better, "one_sided": found.one_sided},
        "tests": [
            {
                "test": each.test,
                "change": str(each.change),
                "before": _counts(each.before),
                "after": _counts(each.after),
                "chance": each.chance,
                "more_runs": each.more,
            }
            for each in found.changes
        ],
        "times": {
            "overall": found.times.overall,
            "compared": found.times.compared,
            "changed": [vars(each) for each in found.times.changed],
        },
    }


def _counts(counts: Counts) -> dict[str, object]:
    return {"passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped, "flaky": counts.flaky}


def history_document(history: History, everything: bool) -> Document:
    """Flaky tests first; tests that always pass only if ``everything`` is asked for."""
    runs = plural(len(history.runs), "run")
    where = f" in {plural(len(history.environments), 'environment')}" if len(history.environments) > 1 else ""
    counts = ((len(history.of(kind)), word) for kind, (word, _, _) in _HISTORY.items())
    counted = ", ".join(f"{count} {word}" for count, word in counts if count) or "no results"
    several = len(history.environments) > 1
    columns = ("test", "passed", "rate", "95 % interval", "last", "time", *(["environment"] if several else []))
    sections: list[Section] = []
    for kind, (_, title, intro) in _HISTORY.items():
        tests = history.of(kind) if everything or kind != "passing" else ()
        rows = tuple(_history_row(each, several) for each in tests)
        table = Table("", columns, rows, words=_WORDS) if rows else None
        sections += section(title.lower().replace(" ", "-"), title, *said(intro if rows else ""), table)
    answer = said(f"{runs}{where}: {counted}.", tone="strong")
    return Document(f"Tests over {runs}", answer, (*sections, *_about(_history_notes(history, everything))))


def _history_row(each: TestHistory, several: bool) -> tuple[str, ...]:
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


def _history_notes(history: History, everything: bool) -> Iterator[str]:
    yield from gaps(history.runs)
    passing = len(history.of("passing"))
    if passing and not everything:
        yield f"{plural(passing, 'test')} that always passed: --all shows them."
    if len(history.environments) == 1:
        known = str(history.environments[0])
        yield f"{known[0].upper()}{known[1:]}."
    if len(history.runs) == 1:
        yield "One run says nothing about flakiness, except where a retry came out differently."


def history_data(history: History) -> dict[str, object]:
    """For programs."""
    return {
        "runs": [{"run": run.name, "environment": str(run.environment)} for run in history.runs],
        "tests": [_of_test(each) for each in history.tests],
    }


def _of_test(each: TestHistory) -> dict[str, object]:
    return {
        "test": each.test,
        "environment": each.environment.parts,
        "flaky": each.counts.flaky,
        **_counts(each.counts),
        "pass_rate": each.rate,
        "low": each.low,
        "high": each.high,
        "seconds": each.seconds,
        "last": str(each.counts.last),
        "last_run": each.last,
    }
