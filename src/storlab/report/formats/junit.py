"""Runs compared as JUnit XML, for CI systems."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.summary import Outcome
from storlab.report.language.methods import runs_method
from storlab.report.language.say import said as told_of
from storlab.report.language.say import say
from storlab.report.model import across
from storlab.text import one_line


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
    said.text = "\n".join(one_line(text) for text in (*across.cautions(given), runs_method(given.method)))
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
    unclear = [say(r.why) for r in c.gates if r.outcome == "undecided"]
    without = c.basis != "interleaved" or answer.verdict == "undecided"
    if failed:
        message = one_line(" ".join(f"{r.gate}: {say(r.why)}" for r in failed))
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
        *told_of(answer.warnings),
        *(f"{r.gate}: {r.outcome}. {say(r.why)}" for r in c.gates),
    ]
    Xml.SubElement(case, "system-out").text = "\n".join(one_line(text) for text in told)
    return case
