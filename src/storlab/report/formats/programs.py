"""For programs: reports, comparisons and documents as JSON, unrounded and in base units; comparisons as JUnit XML."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as Xml

import msgspec

from storlab.analysis.runs.across_runs import RunComparison, RunsCompared
from storlab.analysis.summary import Outcome
from storlab.base.text import one_line, spelled
from storlab.report.document import Block, Code, Document, Facts, Figure, Group, Line, Sentences, Table
from storlab.report.language.methods import runs_method
from storlab.report.language.say import said as told_of
from storlab.report.language.say import say
from storlab.report.model import across
from storlab.report.model.across import cautions
from storlab.report.model.chapters import power_cut_facts
from storlab.report.model.conformance import check_facts
from storlab.report.model.input import ReportInput


def render_json(given: ReportInput) -> str:
    """Every field of ``Summary``; ``cautions``, which all must read, in facts. Numbers that are no number are null."""
    cuts = power_cut_facts(given.power_cuts)
    more = {"cautions": given.cautions, "checks": list(check_facts(given)), "power_cuts": cuts}
    facts = given.summary.facts | {name: found for name, found in more.items() if found}
    return as_json(replace(given.summary, facts=facts))


def render_comparison(given: RunsCompared) -> str:
    """Every field of ``RunsCompared``, and whether its gates failed."""
    data = {"failed": given.failed, **{key: getattr(given, key) for key in given.__dataclass_fields__}}
    data["cautions"] = cautions(given)
    return as_json(data)


def render_document(document: Document) -> str:
    """What it says, by section, in the words that people read; charts by what they show."""
    return as_json(data(document))


def as_json(value: object) -> str:
    """Indented; what isn't JSON's as text, and no character that a terminal would act on."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    return spelled(f"{text.decode()}\n")


def data(document: Document) -> dict[str, object]:
    """A document as JSON's objects and lists."""
    return {
        "title": document.title,
        "head": list(map(_data, document.head)),
        "sections": [
            {"id": each.id, "title": each.title, "blocks": list(map(_data, each.blocks))} for each in document.sections
        ],
    }


def _data(block: Block) -> dict[str, object]:
    match block:
        case Sentences():
            return {"sentences": list(map(_line, block.lines))}
        case Table():
            (caption, *columns), rows = block.texts()
            said = {"title": block.title, "caption": caption, "notes": list(block.notes)}
            table = [list(map(str, row)) for row in (columns, *rows)]
            return {name: str(v) if isinstance(v, str) else v for name, v in said.items() if v} | {"table": table}
        case Figure():
            return {"figure": block.name, "title": block.title, "shows": block.alt}
        case Facts():
            parts = [{"title": name, "facts": {fact.name: fact.text for fact in facts}} for name, facts in block.parts]
            return {"title": block.title, "parts": parts}
        case Code():
            return {"title": block.title, "code": block.text}
        case Group():
            return {"title": block.title, "blocks": list(map(_data, block.blocks))}


def _line(line: Line) -> object:
    text = f"{line.mark} {line.text}" if line.mark else line.text
    return {"text": text, "under": list(map(_line, line.under))} if line.under else text


# Runs compared as JUnit XML, for CI systems.


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
