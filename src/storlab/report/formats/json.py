"""Reports, comparisons and documents as JSON: fields by their names, unrounded and in base units."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from storlab.analysis.runs.across_runs import RunsCompared
from storlab.report.document import Block, Code, Document, Facts, Figure, Group, Line, Sentences, Table
from storlab.report.model.across import cautions
from storlab.report.model.chapters import power_cut_facts
from storlab.report.model.conformance import check_facts
from storlab.report.model.input import ReportInput
from storlab.text import spelled


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
