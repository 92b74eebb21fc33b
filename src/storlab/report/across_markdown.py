"""Runs compared, as Markdown for a pull request: the outcome first, then tables, then why."""

from __future__ import annotations

from collections.abc import Iterator

from storlab.analysis.across_runs import RunComparison, RunsCompared
from storlab.report import across, words
from storlab.report.across_tables import ratio_tables, variability_tables
from storlab.report.escape import markdown as escaped
from storlab.report.markdown import table_lines


def render_markdown(given: RunsCompared) -> str:
    """CommonMark with GitHub's tables."""
    return "\n".join(_lines(given)).rstrip() + "\n"


def _lines(given: RunsCompared) -> Iterator[str]:
    yield from (f"### {escaped(across.title(given))}", "", f"**{escaped(across.outcome(given))}**", "")
    for caution in given.cautions:
        yield from (f"> **Caution:** {escaped(caution)}", "")
    for table in (*ratio_tables(given, gates=True), *variability_tables(given)):
        caption = f" ({escaped(table.caption)})" if table.caption else ""
        yield from (f"**{escaped(table.title)}**{caption}", "", *table_lines(table))
    for sentence in across.why_described(given):
        yield from (f"{across.DESCRIBED} {escaped(sentence)}", "")
    missing = across.not_compared(given)
    if missing:
        yield from (*(f"- {across.MISSING} {escaped(sentence)}" for sentence in missing), "")
    yield from ("<details><summary>Why</summary>", "")
    for c in given.comparisons:
        yield from _why(given, c)
    yield from ("", escaped(given.method), "", "</details>", "")


def _why(given: RunsCompared, c: RunComparison) -> Iterator[str]:
    said = across.described(c) if c.basis == "not interleaved" else across.sentence(c)
    yield f"- {across.mark(c)} {escaped(across.name(c))}: {escaped(said)}"
    if varying := across.varying_of(given, c):
        yield f"  - {across.DESCRIBED} {escaped(across.varies(varying))}"
    yield from (f"  - {escaped(words.stop(warning))}" for warning in c.comparison.warnings)
    yield from (f"  - {escaped(r.gate)} {across.OUTCOMES[r.outcome]}. {escaped(r.sentence)}" for r in c.gates)
