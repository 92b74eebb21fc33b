"""A chart's SVG made fit to stand inside a page: a name for screen readers, ids of its own, no address."""

from __future__ import annotations

import re
from html import escape

from storlab.report.charts import Panel
from storlab.report.escape import plain

_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')
_FONT = re.compile(r' font-family="[^"]*"')  # the same in every text: the style sheet says it once
_ID = re.compile(r'\b(id="|url\(#)([A-Za-z0-9_-]+)')

# Hundredths of a pixel are enough; only within tags, for texts may be numbers too.
_TAG = re.compile(r"<[^>]*>")
_LONG = re.compile(r"(\d\.\d\d)\d+")


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
