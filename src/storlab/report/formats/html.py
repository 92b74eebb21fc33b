"""A report as one HTML file that needs nothing else: no network, no script, no font, no other file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, get_args

import jinja2
from markupsafe import Markup

from storlab.extras import has_extra, lacking
from storlab.grouping import grouped
from storlab.report.charts import all_panels
from storlab.report.charts.kind import Kind
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.input import ReportInput
from storlab.report.model.setup import node_sheets, stack_sheets
from storlab.report.model.view import View
from storlab.text import plain

if TYPE_CHECKING:
    from storlab.report.charts.panel import Panel

# Charts of one kind: beyond that nobody looks, and the page grows heavy. The tables have all numbers.
_MOST = 24
_TEMPLATES = Path(__file__).parent / "templates"
_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')
_FONT = re.compile(r' font-family="[^"]*"')  # the same in every text: the style sheet says it once
_ID = re.compile(r'\b(id="|url\(#)([A-Za-z0-9_-]+)')

# Hundredths of a pixel are enough; only within tags, for texts may be numbers too.
_TAG = re.compile(r"<[^>]*>")
_LONG = re.compile(r"(\d\.\d\d)\d+")


def render_html(given: ReportInput) -> str:
    """The whole report: verdicts, charts as inline SVG, tables, facts, study and method."""
    return page_of(given, all_panels(given))


def page_of(given: ReportInput, panels: list[Panel]) -> str:
    """The page, with ``panels`` as its charts: for whoever writes them as files, too."""
    shown, manifest = View(given), given.manifest
    charts = _charts(panels)
    page = _environment().get_template("report.html.j2")
    return page.render(
        view=shown,
        sections=[(anchor, name) for anchor, name, there in _sections(shown, charts, given) if there],
        charts=charts,
        claims_lead=CLAIMS,
        repeated=any(estimate.rounds > 1 for estimate in given.summary.estimates),
        course=_by_group(charts["course"] + charts["series"]),
        variability=[_by_group([each for each in charts["variability"] if each[0].aside is a]) for a in (False, True)],
        effects=_by_group(charts["effects"]),
        block=[_by_group([each for each in charts["block"] if each[0].aside is aside]) for aside in (False, True)],
        commands=given.commands,
        study=given.study,
        study_file=PurePath((manifest and manifest.study_file) or "study.toml").name,
        no_charts="" if has_extra("charts") else lacking("charts", "charts"),
        left_out=len(panels) - sum(len(group) for group in charts.values()),
        nodes=node_sheets(manifest),
        stacks=stack_sheets(given),
        css=Markup((_TEMPLATES / "report.css").read_text("utf-8")),  # our own file
    )


def _sections(shown: View, charts: Mapping[Kind, object], given: ReportInput) -> Iterator[tuple[str, str, bool]]:
    manifest = given.manifest
    yield "verdicts", "Verdicts", True
    yield "claims", "Claims", bool(shown.claims)
    yield "why", "Why", shown.why is not None
    yield "measured", "Measured", bool(shown.measured)
    yield "conformance", "Conformance", bool(shown.conformance)
    yield "nodes", "Nodes", bool(shown.nodes or shown.guests)
    yield "block", "Block I/O", bool(shown.block or shown.block_details)
    yield "compared", "Compared", bool(shown.comparisons)
    yield "effects", "Effects", bool(shown.effects)
    yield "time", "Over time", bool(charts["series"] or charts["course"])
    yield "variability", "Variability", bool(charts["variability"] or shown.variability)
    yield "latency", "Latency", bool(charts["latency"] or shown.latencies)
    yield "absent", "Not measured", shown.absent is not None
    yield "further", "Further metrics", bool(shown.others)
    yield "probes", "Probes", bool(shown.probes)
    yield "facts", "Set-up", bool(shown.setup or (manifest and manifest.nodes) or given.facts)
    yield "reproduce", "Reproduce", bool(given.commands or given.study)
    yield "method", "Method", bool(shown.method)


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Markup is ours and stays; every other text loses control characters before it is escaped.
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )


def _charts(panels: list[Panel]) -> dict[Kind, list[tuple[Panel, Markup]]]:
    groups: dict[Kind, list[tuple[Panel, Markup]]] = {kind: [] for kind in get_args(Kind)}
    for number, panel in enumerate(panels):
        if len(groups[panel.kind]) < _MOST:
            drawn = Markup(inline(panel, f"c{number}"))  # vl-convert's own, which escapes the text in it
            groups[panel.kind].append((panel, drawn))
    return groups


def _by_group(charts: list[tuple[Panel, Markup]]) -> list[tuple[str, list[tuple[Panel, Markup]]]]:
    """Charts that share a scale, together, in the study's order."""
    return list(grouped((panel.group, (panel, drawn)) for panel, drawn in charts).items())


def inline(panel: Panel, prefix: str) -> str:
    """``panel`` as an ``<svg>`` element. ``prefix`` keeps its ids apart from those of other charts.

    One that needs room is there twice, the second for pages without it: the style sheet shows one of them.
    """
    if not panel.wide:
        return _named(panel.svg, panel.alt, prefix, "chart")
    broad = _named(panel.svg, panel.alt, f"{prefix}w", "chart broad")
    return broad + _named(panel.slim_svg, panel.alt, prefix, "chart slim")


def _named(svg: str, alt: str, prefix: str, classes: str) -> str:
    root = _ROOT.search(svg)
    box = _VIEW_BOX.search(root[0]) if root else None
    if root is None or box is None:
        raise AssertionError("vl-convert gave an SVG without a viewBox")
    label = escape(plain(alt), quote=True)
    opening = f'<svg class="{classes}" viewBox="{box[1]}" role="img" aria-label="{label}">'
    body = _TAG.sub(lambda tag: _FONT.sub("", _LONG.sub(r"\1", tag[0])), svg[root.end() :])
    return _ID.sub(lambda match: f"{match[1]}{prefix}-{match[2]}", opening + body)
