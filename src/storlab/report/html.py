"""A report as one HTML file that needs nothing else: no network, no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from storlab.report.charts import Kind, Panel, all_panels
from storlab.report.escape import plain
from storlab.report.factsheet import Fact, facts_of
from storlab.report.input import ReportInput
from storlab.report.reproduce import commands
from storlab.report.svg import inline
from storlab.report.view import View, view

_TEMPLATES = Path(__file__).parent / "templates"


def render_html(given: ReportInput) -> str:
    """The whole report: verdicts, charts as inline SVG, tables, facts, study and method."""
    shown, charts = view(given), _charts(given)
    page = _environment().get_template("report.html.j2")
    return page.render(
        view=shown,
        sections=[(anchor, name) for anchor, name, there in _sections(shown, charts, given) if there],
        charts=charts,
        commands=commands(given.manifest),
        study=str(given.manifest.get("study_text") or ""),
        study_file=str(given.manifest.get("study_file") or "study.toml"),
        nodes=_nodes(given.manifest),
        layers=_layers(given),
        css=Markup((_TEMPLATES / "report.css").read_text("utf-8")),  # our own file
    )


def _sections(shown: View, charts: Mapping[Kind, object], given: ReportInput) -> Iterator[tuple[str, str, bool]]:
    """Every section of the page: its id, its name, and whether there is anything in it."""
    manifest = given.manifest
    yield "verdicts", "Verdicts", True
    yield "measured", "Measured", bool(shown.measured)
    yield "compared", "Compared", bool(shown.comparisons)
    yield "time", "Over time", bool(charts["series"])
    yield "latency", "Latency", bool(charts["latency"])
    yield "absent", "Not measured", shown.absent is not None
    yield "further", "Further metrics", bool(shown.others)
    yield "probes", "Probes", bool(shown.probes)
    yield "facts", "Set-up", bool(manifest.get("nodes") or given.facts)
    yield "reproduce", "Reproduce", bool(commands(manifest) or manifest.get("study_text"))
    yield "method", "Method", bool(shown.method)


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_clean,
    )


def _clean(value: object) -> object:
    """Markup is ours and stays; every other text loses control characters before it is escaped."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else plain(value)


def _charts(given: ReportInput) -> dict[Kind, list[tuple[Panel, Markup]]]:
    groups: dict[Kind, list[tuple[Panel, Markup]]] = {"paired": [], "rounds": [], "series": [], "latency": []}
    for number, panel in enumerate(all_panels(given)):
        groups[panel.kind].append((panel, Markup(inline(panel, f"c{number}"))))  # from vl-convert
    return groups


def _nodes(manifest: Mapping[str, Any]) -> list[tuple[str, list[Fact]]]:
    return [(str(name), facts_of(facts)) for name, facts in (manifest.get("nodes") or {}).items()]


def _layers(given: ReportInput) -> list[tuple[str, list[tuple[str, list[Fact]]]]]:
    """Per cell: (its name, [(node and layer, facts)])."""
    levels = {cell.cell: cell.levels for cell in given.summary.cells}
    sheets = []
    for cell, nodes in given.facts.items():
        name = ", ".join(levels.get(cell, {}).values()) or f"cell {cell}"
        sheets.append(
            (name, [(f"{node}: {layer}", facts_of(f)) for node, layers in nodes.items() for layer, f in layers.items()])
        )
    return sheets
