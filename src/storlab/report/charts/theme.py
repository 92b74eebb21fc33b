"""How charts look, and the way out of Altair: SVG and PNG, made without a browser or network.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which people with any colour vision tell apart; the
yellow is left out, too faint on white. Every colour here is a plain attribute in the SVG, so the page's style sheet
can answer it with another one in dark mode (``templates/report.css``, which lists the same values).
"""

from __future__ import annotations

import re
from typing import Any

import altair as alt
import vl_convert

from storlab.report.charts.names import legend_of, with_short_names
from storlab.text import plain

WIDTH = 360  # px, the whole chart: as wide as a phone's page, and a third of a desktop's
WIDE = 1040  # of what needs room, such as twelve hours: as wide as a desktop's page
INK, SOFT, FAINT, ZONE = "#24292f", "#57606a", "#d8dee4", "#eaeef2"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
PAPER = "#ffffff"
BELOW = ("#fbdab8", "#f8bb7a", "#ef8f3c", "#c4550a", "#8a3400")
ABOVE = ("#d3e5f4", "#a9cfea", "#6aabd8", "#2c7ab8", "#0b4f82")
"""Shades of two hues that nobody confuses, from little to much; the last two carry white text."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [5, 2, 1, 2], [12, 4], [3, 5])

FONT = "Helvetica, Arial, sans-serif"
MOST_LINES = len(COLOURS)
"""In one chart: more are indistinguishable."""
_TITLE = {"titleColor": SOFT, "titleFontSize": 12, "titleFontWeight": "normal"}
_LINES = {"labelColor": SOFT, "gridColor": FAINT, "domainColor": SOFT, "tickColor": SOFT}
_ROOM = {"titlePadding": 8, "labelLimit": 132, "labelSeparation": 6, "titleLimit": 340, "tickCount": 5}
_ABOVE = {"orient": "top", "direction": "horizontal", "titleOrient": "left", "titlePadding": 14, "offset": 4}
_SYMBOL = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 220}
CONFIG: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "padding": 2,
    "view": {"stroke": None},
    # The page says what points and bars show, under the pointer; nobody can point at a value of the others.
    **{mark: {"aria": False} for mark in ("area", "line", "rule", "text", "tick")},
    "axis": {"aria": False, **_LINES, **_TITLE, **_ROOM, "labelFontSize": 12},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {"aria": False, **_ABOVE, **_TITLE, **_SYMBOL, "labelColor": INK, "labelFontSize": 12},
}

Chart = alt.Chart | alt.LayerChart | alt.FacetChart


def of(names: list[str], choices: tuple[Any, ...]) -> alt.Scale:
    """Give each of ``names`` its colour, shape or dash; the same in every chart that knows the same names."""
    return alt.Scale(domain=names, range=[choices[i % len(choices)] for i in range(len(names))])


def specification(chart: Chart, *, width: int = WIDTH) -> dict[str, Any]:
    """``chart`` as Vega-Lite with this theme, ``width`` pixels wide over all."""
    with alt.data_transformers.disable_max_rows():  # Altair's limit is for notebooks, which would keep the data
        # Checking against the schema takes longer than the rest together: a test does that, for every chart there is.
        spec: dict[str, Any] = with_short_names(_cleaned(chart.to_dict(validate=False)))
    legend, further = legend_of(spec, width)
    config = CONFIG | {"legend": CONFIG["legend"] | legend}
    size = {"width": width, "height": spec["height"] + further}
    return spec | size | {"config": config, "autosize": {"type": "fit", "contains": "padding"}}


_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")


def _cleaned(part: Any) -> Any:
    """``part`` of a specification without what vl-convert 1.9 can't draw.

    On control characters it aborts the whole process. Labels that are too long it cuts in units of UTF-16, through the
    middle of a character that takes two, and then can't read its own output.
    """
    if isinstance(part, str):
        return _BEYOND_16_BITS.sub("\N{REPLACEMENT CHARACTER}", plain(part))
    if isinstance(part, dict):
        return {key: _cleaned(value) for key, value in part.items()}
    return [_cleaned(value) for value in part] if isinstance(part, list) else part


def to_svg(chart: Chart, *, width: int = WIDTH) -> str:
    """``chart`` as an SVG document, without title and ground."""
    return vl_convert.vegalite_to_svg(specification(chart, width=width))


def to_png(svg: str, *, scale: float = 2.0) -> bytes:
    """What ``to_svg`` gave as a PNG, ``scale`` times as wide as it says. A third of the time of drawing it again."""
    return vl_convert.svg_to_png(svg, scale=scale)
