"""Runs compared: for the terminal and for logs, as Markdown for a pull request, and as JUnit XML for CI systems."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from rich.console import Console, ConsoleOptions, RenderableType
from rich.rule import Rule
from rich.text import Text

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.summary import Outcome
from storlab.report.formats.drawing import STYLES, bullet, foreign, in_columns, section
from storlab.report.formats.escape import markdown as escaped
from storlab.report.formats.markdown import table_lines
from storlab.report.formats.terminal import WIDTH, gate_bullet
from storlab.report.language import words
from storlab.report.model import across
from storlab.report.model.across_tables import ratio_tables, variability_tables
from storlab.report.model.gates import OUTCOMES
from storlab.text import one_line

_MOST = 24  # answers that are listed one by one; the table has all


def render_text(given: RunsCompared, width: int = WIDTH) -> str:
    """Plain text without colour, ``width`` columns wide."""
    return in_columns(TerminalComparison(given), width)


class TerminalComparison:
    """The same for any Rich console, as wide as that is."""

    def __init__(self, given: RunsCompared) -> None:
        self._given = given

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from _parts(self._given, options.max_width)


def _parts(given: RunsCompared, width: int) -> Iterator[RenderableType]:
    yield foreign(across.title(given), "bold")
    for caution in across.cautions(given):
        yield bullet("!", "bold yellow", caution)
    for place, group in _told(given).items():
        yield Text()
        heading = foreign(place, "bold")
        if better := words.direction(group[0].comparison.better):
            heading.append(f"  {better}", "dim")
        yield heading
        for c in group:
            yield from _answer(given, c)
    if why := across.why_described(given):
        yield Text()
        for sentence in why:
            yield bullet(words.DESCRIBED, "bold", sentence)
    tables = ratio_tables(given)
    if sum(len(table.rows) for table in tables) > 1:
        yield from section("Compared", tables, width)
    missing = [c for c in given.comparisons if c.basis == "none"]
    if missing:
        yield Text()
        yield Rule(Text("Not compared", "bold"), align="left", style="dim")
        for sentence in across.not_compared(given):
            yield bullet(words.MARKS["missing"], "yellow", sentence)
        for told in dict.fromkeys(result for c in missing for result in c.gates):
            yield gate_bullet(told, indent=2)
    yield from section("Variability", variability_tables(given), width)
    if given.method:
        yield Text()
        yield foreign(given.method, "dim")
    yield Text()
    yield foreign(across.outcome(given), _outcome_style(given))


def _told(given: RunsCompared) -> dict[str, list[RunComparison]]:
    """What is said in sentences: everything, or of many answers those that a reader must not overlook."""
    found = across.groups(given)
    if sum(map(len, found.values())) <= _MOST:
        return found
    chosen = {place: [c for c in group if _stands_out(c)] for place, group in found.items()}
    return {place: group for place, group in chosen.items() if group}


def _stands_out(c: RunComparison) -> bool:
    answer = c.comparison
    return answer.pooled or answer.verdict in ("better", "worse") or any(r.outcome == "hit" for r in c.gates)


def _answer(given: RunsCompared, c: RunComparison) -> Iterator[RenderableType]:
    if c.basis == "interleaved":
        yield bullet(across.mark(c), STYLES[c.comparison.verdict], words.sentence(c.comparison), indent=2)
    else:
        yield bullet(across.mark(c), "bold", across.described(c), indent=2)
    if varying := across.varying_of(given, c):
        yield bullet(words.DESCRIBED, "bold", across.varies(varying), indent=4)
    for warning in c.comparison.warnings:
        yield bullet("!", "yellow", words.stop(warning), indent=4)
    for result in c.gates:
        yield gate_bullet(result, indent=4)


def _outcome_style(given: RunsCompared) -> str:
    if given.failed:
        return "bold red"
    return "bold green" if any(c.gates for c in given.comparisons) else "bold"


def render_markdown(given: RunsCompared) -> str:
    """CommonMark with GitHub's tables."""
    return "\n".join(_lines(given)).rstrip() + "\n"


def _lines(given: RunsCompared) -> Iterator[str]:
    yield from (f"### {escaped(across.title(given))}", "", f"**{escaped(across.outcome(given))}**", "")
    for caution in across.cautions(given):
        yield from (f"> **Caution:** {escaped(caution)}", "")
    for table in (*ratio_tables(given, gates=True), *variability_tables(given)):
        caption = f" ({escaped(table.caption)})" if table.caption else ""
        yield from (f"**{escaped(table.title)}**{caption}", "", *table_lines(table))
    for sentence in across.why_described(given):
        yield from (f"{words.DESCRIBED} {escaped(sentence)}", "")
    missing, missing_mark = across.not_compared(given), words.MARKS["missing"]
    if missing:
        yield from (*(f"- {missing_mark} {escaped(sentence)}" for sentence in missing), "")
    yield from ("<details><summary>Why</summary>", "")
    for c in given.comparisons:
        yield from _why(given, c)
    yield from ("", escaped(given.method), "", "</details>", "")


def _why(given: RunsCompared, c: RunComparison) -> Iterator[str]:
    said = across.described(c) if c.basis == "not interleaved" else across.sentence(c)
    yield f"- {across.mark(c)} {escaped(across.name(c))}: {escaped(said)}"
    if varying := across.varying_of(given, c):
        yield f"  - {words.DESCRIBED} {escaped(across.varies(varying))}"
    yield from (f"  - {escaped(words.stop(warning))}" for warning in c.comparison.warnings)
    yield from (f"  - {escaped(r.gate)} {OUTCOMES[r.outcome]}. {escaped(r.sentence)}" for r in c.gates)


def render_junit(given: RunsCompared) -> str:
    """A test case for each comparison, which CI systems list with their tests.

    A gate that is hit or missing is a failure, and so is one that is undecided, unless the user lets it pass: then it
    is skipped, with the reason, as is what has no answer or, without gates, no verdict. It is never a success.
    Source: the schema that Jenkins' plugin reads,
    https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd
    """
    suite = Xml.Element("testsuite", name=one_line(f"storlab compare: {across.title(given)}"))
    for comparison in given.comparisons:
        suite.append(_case(given, comparison))
    failures, skipped = (len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "skipped"))
    counts = {"tests": len(given.comparisons), "failures": failures, "skipped": skipped, "errors": 0}
    for key, count in counts.items():
        suite.set(key, str(count))
    said = Xml.SubElement(suite, "system-out")
    said.text = "\n".join(one_line(text) for text in (*across.cautions(given), given.method))
    root = Xml.Element("testsuites", {key: str(count) for key, count in counts.items()})
    root.append(suite)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


_FIRST: tuple[Outcome, ...] = ("hit", "missing", "undecided", "passed")


def _case(given: RunsCompared, c: RunComparison) -> Xml.Element:
    answer = c.comparison
    classname = ".".join(part for part in ("storlab", answer.source, answer.metric) if part)
    case = Xml.Element("testcase", classname=one_line(classname), name=one_line(across.name(c)), time="0")
    failed = [r for r in c.gates if r.fails(allow_undecided=given.allow_undecided)]
    unclear = [r.sentence for r in c.gates if r.outcome == "undecided"]
    without = c.basis != "interleaved" or answer.verdict == "undecided"
    if failed:
        message = one_line(" ".join(f"{r.gate}: {r.sentence}" for r in failed))
        first = min(failed, key=lambda r: _FIRST.index(r.outcome))
        kind = first.gate if first.outcome == "hit" else first.outcome
        failure = Xml.SubElement(case, "failure", message=message, type=kind)
        failure.text = one_line(across.sentence(c))
    elif unclear or c.basis == "none" or (without and not c.gates):
        Xml.SubElement(case, "skipped", message=one_line(" ".join(unclear) if unclear else across.sentence(c)))
    varying = across.varying_of(given, c)
    described = [across.varies(varying)] if varying else []
    told = [
        across.sentence(c),
        *described,
        *answer.warnings,
        *(f"{r.gate}: {r.outcome}. {r.sentence}" for r in c.gates),
    ]
    Xml.SubElement(case, "system-out").text = "\n".join(one_line(text) for text in told)
    return case
