"""A report as one HTML file that needs nothing else: no network, no font, no other file.

It is whole without scripts. Its own one (``templates/report.js`` and ``scales.js``) sorts and filters tables, shows
values of charts, switches levels off, and changes scales; the page's policy allows it by its hash, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, get_args

from markupsafe import Markup
from markupsafe import escape as markup_escape

from storlab.extras import has_extra, lacking
from storlab.grouping import grouped
from storlab.report.charts import all_panels
from storlab.report.charts.kind import Kind
from storlab.report.formats import html_page
from storlab.report.formats.drawing import STYLES
from storlab.report.language import words
from storlab.report.model.claims import LEAD as CLAIMS
from storlab.report.model.grid import MANY
from storlab.report.model.input import ReportInput
from storlab.report.model.setup import node_sheets, stack_sheets
from storlab.report.model.steady import TITLE as STEADY_STATE
from storlab.report.model.view import View
from storlab.text import plain

if TYPE_CHECKING:
    from storlab.report.charts.panel import Panel

# Charts of one kind: beyond that nobody looks, and the page grows heavy. The tables have all numbers.
_MOST = 24
_SCRIPTS = ("report.js", "scales.js")
_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')
_FONT = re.compile(r' font-family="[^"]*"')  # the same in every text: the style sheet says it once
_LABEL = re.compile(r'\baria-label="([^"]*)"')
_ROLES = re.compile(r' (?:aria-label|aria-roledescription|role)="[^"]*"')
_MARKS = re.compile(r'(<g class="mark-[a-z]+ role-mark[^>]*>)(.*?</g>)')
_VALUES = re.compile(r'data-v="([^"]*)"')
_DIGITS = re.compile(r"(?<![\w.])-?\d+\.\d{3,}(?:e[-+]?\d+)?")
_ID = re.compile(r'\b(id="|url\(#)([A-Za-z0-9_-]+)')

# Tenths of a pixel are enough; only within tags, for texts may be numbers too.
_TAG = re.compile(r"<[^>]*>")
_LONG = re.compile(r"(\d\.\d)\d+")
_UNSEEN = re.compile(
    r'<path class="(?:fore|back)ground"[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>| opacity="1"| aria-hidden="true"'
)
"""What Vega draws of each group, though it has neither size nor colour; and what is hidden in an image anyway."""


def render_html(given: ReportInput) -> str:
    """The whole report: verdicts, charts as inline SVG, tables, facts, study and method."""
    return page_of(given, all_panels(given))


def page_of(given: ReportInput, panels: list[Panel]) -> str:
    """The page, with ``panels`` as its charts: for whoever writes them as files, too."""
    shown, manifest = View(given), given.manifest
    charts = _charts(panels)
    page = html_page.environment({"explained": _explained, "marked": _marked}).get_template("report.html.j2")
    return page.render(
        view=shown,
        sections=[(anchor, name) for anchor, name, there in _sections(shown, charts, given) if there],
        charts=charts,
        paired=_paired(panels, charts["paired"]),
        round_means=words.TERMS["round"],
        abridged=len(given.summary.cells) > MANY,
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
        css=html_page.style("report.css"),
        **html_page.script(*_SCRIPTS),
    )


def _sections(shown: View, charts: Mapping[Kind, object], given: ReportInput) -> Iterator[tuple[str, str, bool]]:
    manifest = given.manifest
    yield "answer", "Answer", True
    yield "claims", "Claims", bool(shown.claims)
    yield "steady", STEADY_STATE, bool(shown.steady)
    yield "sweeps", "Sweeps", bool(charts["sweep"] or shown.sweeps)
    yield "why", "Why", shown.why is not None
    yield "measured", "Rounds" if not shown.measured else "Measured", bool(shown.measured or charts["rounds"])
    yield "power-cuts", "After a power cut", bool(shown.power_cuts)
    yield "conformance", "Conformance", bool(shown.conformance)
    yield "nodes", "Per node", bool(shown.nodes or shown.guests)
    yield "block", "Block I/O", bool(shown.block or shown.block_details)
    yield "effects", "Effects", bool(shown.effects)
    yield "time", "Over time", bool(charts["series"] or charts["course"])
    yield "variability", "Variability", bool(charts["variability"] or shown.variability)
    yield "latency", "Latency", bool(charts["latency"] or shown.latencies)
    yield "cpus", "Where CPUs were", bool(charts["profile"])
    yield "absent", "Incomplete cells", shown.absent is not None
    yield "further", "Further metrics", bool(shown.others)
    yield "probes", "Probes", bool(shown.probes or shown.packets)
    yield "facts", "Environment", bool(shown.setup or (manifest and manifest.nodes) or given.facts)
    yield "reproduce", "Reproduce", bool(given.commands or given.study)
    yield "method", "Method", bool(shown.method)


_TERM = re.compile(rf"(?<![\w&-])({'|'.join(words.TERMS)})(s?)(?![\w-])")


def _explained(text: str) -> Markup:
    """``text`` with what our own words mean as their hover text, at the first mention of each."""
    met = set[str]()

    def named(found: re.Match[str]) -> str:
        term = found[1]
        if term in met:
            return found[0]
        met.add(term)
        return f'<abbr tabindex="0" title="{escape(words.TERMS[term])}">{found[0]}</abbr>'

    return Markup(_TERM.sub(named, str(markup_escape(plain(text)))))  # escaped before, so nothing of it is markup


_VERDICT_OF = {words.DESCRIBED: "described"} | {words.MARKS[verdict]: verdict for verdict in STYLES}


def _marked(cell: str) -> str:
    """The verdict by whose mark a table's cell begins; empty for others."""
    return _VERDICT_OF.get(cell[:1], "") if cell[1:2] == " " else ""


def _charts(panels: list[Panel]) -> dict[Kind, list[tuple[Panel, Markup]]]:
    groups: dict[Kind, list[tuple[Panel, Markup]]] = {kind: [] for kind in get_args(Kind)}
    for number, panel in enumerate(panels):
        if len(groups[panel.kind]) < _MOST:
            drawn = Markup(inline(panel, f"c{number}"))  # vl-convert's own, which escapes the text in it
            groups[panel.kind].append((panel, drawn))
    return groups


def _paired(panels: list[Panel], drawn: list[tuple[Panel, Markup]]) -> dict[int, tuple[Panel, Markup]]:
    """Number of a question → its chart, where there is one: those are made in the order of questions."""
    names = [panel.name for panel in panels if panel.kind == "paired"]
    return {names.index(pair[0].name): pair for pair in drawn}


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


def _tag(found: re.Match[str]) -> str:
    """A tag of a chart without what the page says once, and what a mark shows as ``data-v``, for our script."""
    values = _LABEL.search(found[0])
    rest = _FONT.sub("", _LONG.sub(r"\1", _ROLES.sub("", found[0])))
    if values is None or "data-v" in rest:
        return rest
    shown = _DIGITS.sub(lambda number: f"{float(number[0]):.4g}", values[1])
    return f'{rest.removesuffix("/>").removesuffix(">")} data-v="{shown}"{"/>" if rest.endswith("/>") else ">"}'


def _keyed(found: re.Match[str]) -> str:
    """A group of marks with the names of what its marks show said once, as ``data-k``, where they have the same."""
    values = _VALUES.findall(found[0])
    parts = [[part.partition(": ") for part in value.split("; ")] for value in values]
    names = {tuple(name for name, _, _ in each) for each in parts}
    if len(names) != 1 or not all(between for each in parts for _, between, _ in each):
        return found[0]
    shown = iter("; ".join(value for _, _, value in each) for each in parts)
    opening = f'{found[1].removesuffix(">")} data-k="{"; ".join(names.pop())}">'
    return opening + _VALUES.sub(lambda _: f'data-v="{next(shown)}"', found[2])


def _named(svg: str, alt: str, prefix: str, classes: str) -> str:
    root = _ROOT.search(svg)
    box = _VIEW_BOX.search(root[0]) if root else None
    if root is None or box is None:
        raise AssertionError("vl-convert gave an SVG without a viewBox")
    label = escape(plain(alt), quote=True)
    opening = f'<svg class="{classes}" viewBox="{box[1]}" role="img" aria-label="{label}">'
    body = _MARKS.sub(_keyed, _TAG.sub(_tag, _UNSEEN.sub("", svg[root.end() :])))
    return _ID.sub(lambda match: f"{match[1]}{prefix}-{match[2]}", opening + body)
