"""What ``storlab suite compare`` and ``history`` say: an answer and tables, in each format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from storlab.errors import UserError
from storlab.report.formats.escape import markdown
from storlab.report.language.format import duration, plural
from storlab.suites.comparing import LEVEL, Change, Comparison, TestChange
from storlab.suites.history import Counts, History, TestHistory
from storlab.suites.model import ObservedRun
from storlab.text import one_line


@dataclass(frozen=True)
class Table:
    """``numbers``: columns that are aligned to the right. ``tones``: of each row, how it is coloured; may be empty."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    intro: str = ""
    numbers: frozenset[int] = frozenset()
    tone: str = ""


@dataclass(frozen=True)
class Page:
    """``document``: the same for programs."""

    title: str
    answer: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    counts: Sequence[tuple[str, int]] = ()
    document: Mapping[str, object] = field(default_factory=dict)


_MOST = 50  # rows of a table in a terminal; the other formats have all


def render_page(page: Page, format_: str) -> str:
    if format_ not in RENDERERS:
        raise UserError(f"--format {format_}: it is one of {', '.join(RENDERERS)}")
    return RENDERERS[format_](page)


def _text(page: Page) -> str:
    lines = [page.title, "", page.answer]
    for table in page.tables:
        lines += ["", table.title, *([f"  {one_line(table.intro)}"] if table.intro else []), *_aligned(table)]
    lines += ["", *map(one_line, page.notes)] if page.notes else []
    return "\n".join(lines) + "\n"


def _aligned(table: Table) -> Iterator[str]:
    shown = [[one_line(cell) for cell in row] for row in (table.columns, *table.rows[:_MOST])]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [
            cell.rjust(width) if number in table.numbers else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(cells)}".rstrip()
    if len(table.rows) > _MOST:
        yield f"  and {len(table.rows) - _MOST} more"


def _markdown(page: Page) -> str:
    lines = [f"# {markdown(page.title)}", "", f"**{markdown(page.answer)}**"]
    for table in page.tables:
        lines += ["", f"## {markdown(table.title)}", *(["", markdown(table.intro)] if table.intro else []), ""]
        lines.append(f"| {' | '.join(map(markdown, table.columns))} |")
        aligned = ("---:" if number in table.numbers else "---" for number in range(len(table.columns)))
        lines.append(f"| {' | '.join(aligned)} |")
        lines += [f"| {' | '.join(map(markdown, row))} |" for row in table.rows]
    for note in page.notes:
        lines += ["", markdown(note)]
    return "\n".join(lines) + "\n"


def _html(page: Page) -> str:
    from storlab.suites.report.html import environment, styles

    return environment().get_template("suite_pages.html.j2").render(page=page, **styles())


def _json(page: Page) -> str:
    return msgspec.json.format(msgspec.json.encode(page.document), indent=2).decode() + "\n"


RENDERERS: dict[str, Callable[[Page], str]] = {"text": _text, "md": _markdown, "html": _html, "json": _json}


_SHOWN = {
    Change.REGRESSED: ("Regressed", "", "bad"),
    Change.UNDECIDED: ("Undecided", "They came out differently, which flakiness alone may explain.", "known"),
    Change.MISSING: ("Missing", "They had a result before, and none after.", "bad"),
    Change.FLAKY: ("Flaky", "They pass and fail on one side, and no change is established.", "known"),
    Change.FIXED: ("Fixed", "", "good"),
    Change.NEW: ("New", "", "known"),
}
_COLUMNS = ("test", "before", "after", "chance", "to decide")
_LIKELY = 0.05


def changes_page(found: Sequence[Comparison], notes: Sequence[str]) -> Page:
    tables = [table for each in found for table in _tables(each, len(found) > 1)]
    counts = Counter(str(change.change) for each in found for change in each.changes)
    return Page(
        title=f"Suites: {found[0].before.label} and {', '.join(each.after.label for each in found)}",
        answer=" ".join(_answer(each, len(found) > 1) for each in found),
        tables=tuple(tables),
        notes=(*notes, *(note for each in found for note in _notes(each))),
        counts=tuple((str(change), counts[change]) for change in Change if counts[change]),
        document={"notes": list(notes), "comparisons": [_document(each) for each in found]},
    )


def _answer(found: Comparison, several: bool) -> str:
    counted = [(len(found.of(change)), str(change)) for change in _SHOWN if found.of(change)]
    same = len(found.of(Change.UNCHANGED))
    said = ", ".join(f"{count} {word}" for count, word in counted)
    begin = f"{found.after.label}: " if several else ""
    if not found.compared:
        return f"{begin}{said + '. ' if said else ''}No test passed or failed on both sides, so nothing was compared."
    verdict = said or "no test differs"
    return f"{begin}{verdict[0].upper()}{verdict[1:]}{f', {same} unchanged' if said and same else ''}."


def _tables(found: Comparison, several: bool) -> Iterator[Table]:
    where = f" in {found.after.label}" if several else ""
    for change, (title, intro, tone) in _SHOWN.items():
        if tests := found.of(change):
            rows = sorted(tests, key=lambda each: (each.chance if each.chance is not None else 1.0, each.test))
            cells = tuple(map(_row, rows))
            # What no row has anything in is left out.
            kept = [number for number in range(len(_COLUMNS)) if number < 3 or any(row[number] for row in cells)]
            yield Table(
                title + where,
                tuple(_COLUMNS[number] for number in kept),
                tuple(tuple(row[number] for number in kept) for row in cells),
                intro,
                frozenset(kept.index(number) for number in kept if number == 3),
                tone,
            )
    if found.times.changed:
        rows_ = tuple((e.test, duration(e.before), duration(e.after), f"{e.ratio:.2f}×") for e in found.times.changed)
        intro = "Ratios are relative to the other tests of the same runs, so a busy machine does not count as a change."
        columns = ("test", "before", "after", "takes")
        yield Table(f"Times that changed{where}", columns, rows_, intro, frozenset({1, 2, 3}))


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


def _document(found: Comparison) -> dict[str, object]:
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
                "before": counts_document(each.before),
                "after": counts_document(each.after),
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


def counts_document(counts: Counts) -> dict[str, object]:
    return {"passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped, "flaky": counts.flaky}


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
        tables=tuple(_histories_tables(history, everything)),
        notes=tuple(_histories_notes(history, everything)),
        counts=tuple((word, count) for count, word in counts if count),
        document={
            "runs": [{"run": run.name, "environment": str(run.environment)} for run in history.runs],
            "tests": [_histories_document(each) for each in history.tests],
        },
    )


def _histories_tables(history: History, everything: bool) -> Iterator[Table]:
    several = len(history.environments) > 1
    shown = [("Flaky", history.flaky, "known", "Their outcomes differ within one environment.")]
    shown += [("Always failed", history.failing, "bad", ""), ("Never ran", history.skipped, "", "")]
    shown += [("Always passed", history.passing, "good", "")] if everything else []
    for title, tests, tone, intro in shown:
        if tests:
            columns = ("test", "passed", "rate", "95 % interval", "last", "time", *(["environment"] if several else []))
            rows = tuple(_histories_row(each, several) for each in tests)
            yield Table(title, columns, rows, intro, frozenset({1, 2, 3, 5}), tone)


def _histories_row(each: TestHistory, several: bool) -> tuple[str, ...]:
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


def _histories_notes(history: History, everything: bool) -> Iterator[str]:
    yield from gaps(history.runs)
    if history.passing and not everything:
        yield f"{plural(len(history.passing), 'test')} that always passed: --all shows them."
    if len(history.environments) == 1:
        known = str(history.environments[0])
        yield f"{known[0].upper()}{known[1:]}."
    if len(history.runs) == 1:
        yield "One run says nothing about flakiness, except where a retry came out differently."


def _histories_document(each: TestHistory) -> dict[str, object]:
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
