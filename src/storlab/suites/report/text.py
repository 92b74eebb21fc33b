"""Reports that people read as text: plain, Markdown, and as the ZFS Test Suite prints its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storlab.report.formats.escape import markdown
from storlab.report.language.format import duration, quantity
from storlab.suites.model import LOST
from storlab.suites.report.view import Row, View
from storlab.suites.zts_text import console_line, report, summary
from storlab.text import one_line

OTHERS = "Guests that differ from the first, by whose environment the run is recorded"
_MOST = 50  # lines of a kind; the other formats have all


def render_zts(view: View) -> str:
    run = view.run
    shown = [each for each in run.attempts if each.role != "failsafe"]
    lines = "".join(console_line(each, run.asked.runner) for each in shown)
    return lines + summary(run.attempts, run.seconds, str(run.folder)) + report(shown, run.expectations)


def render_text(view: View, *, brief: bool = False) -> str:
    lines = [] if brief else [f"Suite {one_line(view.run.asked.name)}"]
    lines += _section("Not expected", map(_line, view.unexpected))
    lines += _section("No result", view.missing)
    lines += _section("Not run, because it was not found", (str(each) for each in view.run.asked.absent))
    lines += _section("Passed at a later try only", map(_line, view.flaky))
    lines += _section("Left behind", (f"{name}: {what}" for name, what in view.leaks))
    lines += _section("Output that was not kept", (f"{row.name}: {cut}" for row in view.rows if (cut := not_kept(row))))
    if not brief:
        lines += _section("Expected, though they did not pass", map(_line, view.known))
        lines += _section("Skipped", map(_line, view.skipped))
    lines += _section("Entries of the list of expectations", view.notes)
    lines += _section(OTHERS, view.environments)
    lines += ["", view.answer, view.counted, *filter(None, [view.patience])]
    if view.run.stopped:
        lines.append(one_line(view.run.stopped))
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = [f"  {one_line(line)}" for line in lines]
    if not found:
        return []
    more = [f"  and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return ["", title, *found[:_MOST], *more]


def _line(row: Row) -> str:
    why = f": {row.why}" if row.why else ""
    return f"{row.attempt.outcome:7} {row.name} ({duration(row.attempt.elapsed)}){why}"


def not_kept(row: Row) -> str:
    """How much of a script's output its folder lacks; empty where it has all."""
    return f"{quantity(float(row.attempt.dropped), 'B')} of its output was not kept" if row.attempt.dropped else ""


def render_markdown(view: View) -> str:
    return "\n".join(_markdown(view)) + "\n"


def _markdown(view: View) -> Iterator[str]:
    yield f"# Suite {markdown(view.run.asked.name)}"
    yield from ("", f"**{markdown(view.answer)}**", "", markdown(view.counted))
    for title, rows in (
        ("Not expected", view.unexpected),
        ("Expected, though they did not pass", view.known),
        ("Skipped", view.skipped),
    ):
        if rows:
            yield from ("", f"## {title}", "", "| outcome | test | time | why |", "| --- | --- | ---: | --- |")
            for row in rows:
                cells = (str(row.attempt.outcome), row.name, duration(row.attempt.elapsed), row.why)
                yield f"| {' | '.join(map(markdown, cells))} |"
    missing = view.missing + [str(each) for each in view.run.asked.absent]
    if missing:
        yield from ("", "## No result", "")
        yield from (f"- {markdown(path)}" for path in missing)
    if view.notes:
        yield from ("", "## Entries of the list of expectations", "")
        yield from (f"- {markdown(note)}" for note in view.notes)
    if view.environments:
        yield from ("", f"## {OTHERS}", "")
        yield from (f"- {markdown(line)}" for line in view.environments)
    if view.leaks:
        yield from ("", "## Left behind", "")
        yield from (f"- {markdown(name)}: {markdown(what)}" for name, what in view.leaks)
    cut = [(row.name, not_kept(row)) for row in view.rows if row.attempt.dropped]
    if cut:
        yield from ("", "## Output that was not kept", "")
        yield from (f"- {markdown(name)}: {markdown(what)}" for name, what in cut)
    lost = [row for row in view.rows if row.attempt.outcome in LOST]
    if lost:
        yield from ("", "## Guests that were lost", "")
        yield from (f"- {markdown(row.name)}: {markdown(row.attempt.reason)}" for row in lost)
