"""Runs compared, as JUnit XML: a test case for each comparison, which CI systems list with their tests.

A gate that is hit is a failure. A comparison that has no answer, or one of whose gates can't be told, is skipped, with
the reason: it must not look like a success. All others pass, whatever their verdict: what fails is the user's to say.

Source: the schema that Jenkins' plugin reads,
https://github.com/jenkinsci/xunit-plugin/blob/master/src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd/junit-10.xsd
"""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from storlab.analysis.across_runs import RunComparison, RunsCompared
from storlab.report.across import name, sentence, title, varies, varying_of
from storlab.report.escape import one_line


def render_junit(given: RunsCompared) -> str:
    """The whole document."""
    suite = Xml.Element("testsuite", name=one_line(f"storlab compare: {title(given)}"))
    for comparison in given.comparisons:
        suite.append(_case(given, comparison))
    counts = {
        "tests": len(given.comparisons),
        "failures": len(suite.findall("testcase/failure")),
        "skipped": len(suite.findall("testcase/skipped")),
        "errors": 0,
    }
    for key, count in counts.items():
        suite.set(key, str(count))
    said = Xml.SubElement(suite, "system-out")
    said.text = "\n".join(one_line(text) for text in (*given.cautions, given.method))
    root = Xml.Element("testsuites", {key: str(count) for key, count in counts.items()})
    root.append(suite)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _case(given: RunsCompared, c: RunComparison) -> Xml.Element:
    answer = c.comparison
    classname = ".".join(part for part in ("storlab", answer.source, answer.metric) if part)
    case = Xml.Element("testcase", classname=one_line(classname), name=one_line(name(c)), time="0")
    hits = [r for r in c.gates if r.outcome == "hit"]
    unknown = [r.sentence for r in c.gates if r.outcome == "unknown"]
    if hits:
        message = one_line(" ".join(f"{r.gate}: {r.sentence}" for r in hits))
        failure = Xml.SubElement(case, "failure", message=message, type=hits[0].gate)
        failure.text = one_line(sentence(c))
    elif c.basis == "none" or unknown:
        Xml.SubElement(case, "skipped", message=one_line(" ".join(unknown) if unknown else sentence(c)))
    varying = varying_of(given, c)
    described = [varies(varying)] if varying else []
    told = [sentence(c), *described, *answer.warnings, *(f"{r.gate}: {r.outcome}. {r.sentence}" for r in c.gates)]
    Xml.SubElement(case, "system-out").text = "\n".join(one_line(text) for text in told)
    return case
