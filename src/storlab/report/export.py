"""Every chart of a report as SVG and PNG files, for slides, papers and wikis: on white and below its title."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from html import escape
from pathlib import Path

from storlab.report.charts import Panel
from storlab.report.charts.names import width_of
from storlab.report.charts.theme import FONT, INK, PAPER, to_png
from storlab.report.escape import plain

_ROOT = re.compile(r'(<svg\b[^>]*?) width="(\d+)" height="(\d+)" viewBox="[^"]*"([^>]*>)')
_SIZE, _LINE = 14, 17  # px
_GAP = 5  # px, between the title and the chart


def write_charts(panels: Iterable[Panel], folder: Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every chart into ``folder``, which is made where it is missing.

    Both are on white with their title, and need no font or network: vl-convert brings its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for panel in panels:
        svg, png = folder / f"{panel.name}.svg", folder / f"{panel.name}.png"
        drawn = titled(panel.svg, panel.full_title)
        svg.write_text(drawn, "utf-8")
        png.write_bytes(to_png(drawn))
        written += [svg, png]
    return written


def titled(svg: str, title: str) -> str:
    """``svg``, as ``to_svg`` gives it, as a document with ``title`` above, in as many lines as that needs."""
    root = _ROOT.match(svg)
    if root is None:
        raise AssertionError("vl-convert gave an SVG without a size")
    width, height = int(root[2]), int(root[3])
    lines = _lines(plain(title), width)
    top = len(lines) * _LINE + _GAP if lines else 0
    opening = f'{root[1]} width="{width}" height="{height + top}" viewBox="0 0 {width} {height + top}"{root[4]}'
    words = "".join(_text(line, (number + 1) * _LINE - 4) for number, line in enumerate(lines))
    paper = f'<rect width="{width}" height="{height + top}" fill="{PAPER}"/>'
    body = svg[root.end() :].removesuffix("</svg>")
    return f'{opening}{paper}{words}<g transform="translate(0,{top})">{body}</g></svg>'


def _lines(title: str, width: int) -> list[str]:
    """``title`` in lines that fit, by the width that its letters have on average: some have none."""
    letters = width * len(title) / max(width_of(title, _SIZE), 1)
    return textwrap.wrap(title, max(1, int(letters)))


def _text(line: str, baseline: int) -> str:
    style = f'font-family="{FONT}" font-size="{_SIZE}px" font-weight="bold" fill="{INK}"'
    return f'<text x="2" y="{baseline}" {style}>{escape(line)}</text>'
