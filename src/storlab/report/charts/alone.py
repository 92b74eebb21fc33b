"""A chart as a file of its own: the drawing that the page has, on white and below its title."""

from __future__ import annotations

import re
import textwrap
from html import escape

from storlab.report.charts.names import width_of
from storlab.report.charts.theme import FONT, INK, PAPER
from storlab.report.escape import plain

_ROOT = re.compile(r'(<svg\b[^>]*?) width="(\d+)" height="(\d+)" viewBox="[^"]*"([^>]*>)')
_SIZE, _LINE = 14, 17  # px
_GAP = 5  # px, between the title and the chart


def titled(svg: str, title: str) -> str:
    """``svg``, as ``to_svg`` gives it, as a document with ``title`` above, in as many lines as that needs."""
    root = _ROOT.match(svg)
    if root is None:
        raise AssertionError("vl-convert gave an SVG without a size")
    width, height = int(root[2]), int(root[3])
    clean = plain(title)
    lines = textwrap.wrap(clean, int(width * len(clean) / width_of(clean, _SIZE))) if clean.strip() else []
    top = len(lines) * _LINE + _GAP if lines else 0
    opening = f'{root[1]} width="{width}" height="{height + top}" viewBox="0 0 {width} {height + top}"{root[4]}'
    words = "".join(_text(line, (number + 1) * _LINE - 4) for number, line in enumerate(lines))
    paper = f'<rect width="{width}" height="{height + top}" fill="{PAPER}"/>'
    body = svg[root.end() :].removesuffix("</svg>")
    return f'{opening}{paper}{words}<g transform="translate(0,{top})">{body}</g></svg>'


def _text(line: str, baseline: int) -> str:
    style = f'font-family="{FONT}" font-size="{_SIZE}px" font-weight="bold" fill="{INK}"'
    return f'<text x="2" y="{baseline}" {style}>{escape(line)}</text>'
