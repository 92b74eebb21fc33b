"""Runs compared with each other, as text, Markdown and JSON. JUnit's XML is in ``junit``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import orjson

from storlab.analysis.across_runs import RunComparison, RunsCompared
from storlab.report import format as fmt
from storlab.report import words
from storlab.report.escape import markdown as escaped
from storlab.report.escape import one_line
from storlab.report.tables import heading

DESCRIBED = "~"
"""The mark of a difference that is described and not judged."""
MISSING = "−"
_OUTCOMES = {"hit": "FAILED", "passed": "passed", "unknown": "can't be told"}
_WIDTH = 100


def render_text(given: RunsCompared) -> str:
    """For a terminal or a log."""
    lines = [f"{title(given)}", ""]
    for caution in given.cautions:
        lines += _wrapped("! ", caution)
    for c in given.comparisons:
        answer = c.comparison
        better = words.direction(answer.better)
        lines += ["", one_line(f"{name(c)}{f' ({better})' if better else ''}")]
        lines += _wrapped(f"  {mark(c)} ", sentence(c))
        for warning in answer.warnings:
            lines += _wrapped("    ! ", words.stop(warning))
        for result in c.gates:
            lines += _wrapped(f"    {result.gate}: ", f"{_OUTCOMES[result.outcome]}. {result.sentence}")
    lines += ["", *_wrapped("", given.method), "", outcome(given)]
    return "\n".join(lines) + "\n"


def _wrapped(first: str, text: str) -> list[str]:
    return textwrap.wrap(
        one_line(text), _WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def render_markdown(given: RunsCompared) -> str:
    """For a pull request: the outcome first, then a table, then why."""
    return "\n".join(_markdown(given)).rstrip() + "\n"


def _markdown(given: RunsCompared) -> Iterator[str]:
    yield from (f"### {escaped(title(given))}", "", f"**{escaped(outcome(given))}**", "")
    for caution in given.cautions:
        yield from (f"> **Caution:** {escaped(caution)}", "")
    gated = any(c.gates for c in given.comparisons)
    columns = ("compared", "metric", "ratio", "interval", "verdict", "rounds", *(["gates"] if gated else []))
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join(' --- ' for _ in columns)}|"
    for c in given.comparisons:
        yield f"| {' | '.join(escaped(cell) for cell in _row(c, gated))} |"
    yield from ("", "<details><summary>Why</summary>", "")
    for c in given.comparisons:
        yield f"- {escaped(name(c))}: {escaped(sentence(c))}"
        yield from (f"  - {escaped(words.stop(warning))}" for warning in c.comparison.warnings)
        yield from (f"  - {escaped(r.gate)}: {escaped(r.sentence)}" for r in c.gates)
    yield from ("", escaped(given.method), "", "</details>", "")


def _row(c: RunComparison, gated: bool) -> tuple[str, ...]:
    answer = c.comparison
    where = words.levels(answer.within)
    gates = ", ".join(f"{r.gate} {_OUTCOMES[r.outcome]}" for r in c.gates)
    return (
        f"{answer.a} against {answer.b}{f' ({where})' if where else ''}",
        f"{answer.metric}{f': {answer.source}' if answer.source else ''}",
        words.ratio(answer) if answer.ratio is not None else "none",
        fmt.ratio_interval(answer.low, answer.high, answer.ratio) or "none",
        f"{mark(c)} {verdict(c)}",
        " and ".join(str(count) for count in dict.fromkeys(c.rounds)),
        *([gates] if gated else []),
    )


def render_json(given: RunsCompared) -> str:
    """Every field by its name, unrounded, in base units."""
    data = {"failed": given.failed, **{key: getattr(given, key) for key in given.__dataclass_fields__}}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def title(given: RunsCompared) -> str:
    """What is compared with what."""
    others = words.listed(list(given.levels[1:]))
    return f"{others} compared with {given.levels[0]}" + ("" if given.factor == "run" else f" ({given.factor})")


def name(c: RunComparison) -> str:
    """One comparison, named by its metric, its place and its two sides."""
    answer = c.comparison
    return f"{heading(answer.metric, answer.source, answer.within)}: {answer.a} against {answer.b}"


def mark(c: RunComparison) -> str:
    """A shape for each kind of answer."""
    if c.basis == "none":
        return MISSING
    return DESCRIBED if c.basis == "not interleaved" else words.MARKS[c.comparison.verdict]


def verdict(c: RunComparison) -> str:
    """A verdict, or why there is none, in two words."""
    if c.basis == "none":
        return "not compared"
    return "not judged" if c.basis == "not interleaved" else c.comparison.verdict


def sentence(c: RunComparison) -> str:
    """The answer, whole."""
    if c.basis == "interleaved":
        return f"{words.sentence(c.comparison)} {words.stop(c.comparison.reason)}"
    return words.stop(c.comparison.reason)


def outcome(given: RunsCompared) -> str:
    """All gates in one sentence; without gates how many comparisons there are."""
    count = fmt.plural(len(given.comparisons), "comparison")
    results = [result for c in given.comparisons for result in c.gates]
    if not results:
        return f"{count}; no gate was asked for."
    hits = sum(any(r.outcome == "hit" for r in c.gates) for c in given.comparisons)
    unknown = sum(r.outcome == "unknown" for r in results)
    doubt = f"; {fmt.plural(unknown, 'answer')} can't be told" if unknown else ""
    if hits:
        return f"Failed: {hits} of {count} hit a gate{doubt}."
    return f"Passed: no gate was hit in {count}{doubt}."
