"""How charts look: colours, names that fit, axes for numbers with units; and the way out of Altair, as SVG and PNG.

Colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which people with any colour vision tell apart; the
yellow is left out, too faint on white. Every colour here is a plain attribute in the SVG, so the page's style sheet
can answer it with another one in dark mode (``templates/report.css``, which lists the same values).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import altair as alt
import polars as pl
import vl_convert
from rich.cells import cell_len, chop_cells

from storlab.base.text import plain
from storlab.report.language import format as fmt

# Names of levels that are too long for a chart: what they share is left out, for the rest tells them apart.

LIMIT = 18  # letters: 132 px
_WORDS = re.compile(r"[^-_./ :,=]*[-_./ :,=]*")
_LETTER = 0.61  # of its height: how wide a letter is in a font that is wider than the theme's, as a reader's may be
_SIZE, _ROW = 12, 17  # px, of a legend's letters and rows
_SYMBOL = 34  # px, with the room around it
_BESIDE = 48  # px, beside a legend, which begins where the axis does


def shortened(names: Sequence[str], limit: int = LIMIT) -> dict[str, str]:
    """Name → what stands for it, of those longer than ``limit``. No two are the same, nor like a name that is not long.
    Letters count by their width: Chinese ones twice.

    Words that all long names begin or end with go first, then the middle of a name; where that makes two the same, the
    names stay as they are.
    """
    long = [name for name in dict.fromkeys(names) if cell_len(name) > limit]
    found = {name: _cut(part, limit) for name, part in zip(long, _without_common(long, limit), strict=True)}
    taken = [*found.values(), *(name for name in set(names) if name not in found)]
    return found if len(set(taken)) == len(taken) else {}


def title_of(factor: str) -> str | None:
    """What stands beside the levels of ``factor``, as short as they are; nothing where there is no factor."""
    return shortened([factor]).get(factor, factor) or None


def _without_common(names: Sequence[str], limit: int) -> list[str]:
    """Without the first and the last words that all share, as far as is needed: the words next to what differs stay."""
    parts = [[word for word in _WORDS.findall(name) if word] for name in names]
    if len(names) < 2:
        return list(names)
    spare = min(map(len, parts)) - 1
    first = min(spare, _shared(parts))
    last = min(spare - first, _shared([part[::-1] for part in parts]))
    begin = next(n for n in range(first + 1) if n == first or _longest(parts, n, 0) <= limit)
    end = next(n for n in range(last + 1) if n == last or _longest(parts, begin, n) <= limit)
    return [_between(part, begin, end) for part in parts]


def _shared(parts: Sequence[Sequence[str]]) -> int:
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*parts, strict=False)))


def _longest(parts: Sequence[Sequence[str]], begin: int, end: int) -> int:
    return max(cell_len(_between(part, begin, end)) for part in parts)


def _between(words: Sequence[str], begin: int, end: int) -> str:
    return "…" * bool(begin) + "".join(words[begin : len(words) - end]) + "…" * bool(end)


def _cut(name: str, limit: int) -> str:
    if cell_len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{chop_cells(name, limit - 1 - tail)[0]}…{chop_cells(name[::-1], tail)[0][::-1]}"


def width_of(text: str, size: float) -> float:
    """The px that ``text`` takes at most in letters that are ``size`` px high, whatever font a reader has."""
    return cell_len(text) * _LETTER * size


def with_short_names(spec: dict[str, Any]) -> dict[str, Any]:
    """A Vega-Lite specification in which levels are named so that they fit, wherever they are named."""
    short = shortened([name for names in _lists(spec, ("domain", "sort", "values")) for name in names])
    renamed: dict[str, Any] = _mapped(spec, lambda text: short.get(text, text)) if short else spec
    return renamed


def legend_of(spec: dict[str, Any], width: float) -> tuple[dict[str, int], int]:
    """How many columns a legend has within ``width`` px, and the px between them, so that no label meets the next; and
    the px that its rows take below the first.
    """
    longest = max((width_of(name, _SIZE) for names in _lists(spec, ("domain",)) for name in names), default=0.0)
    title = max((width_of(each, _SIZE) for each in _legend_titles(spec)), default=0.0)
    columns = max(1, int((width - _BESIDE - title) // (_SYMBOL + longest)))
    shown = max((len(names) for names in _lists(spec, ("values",))), default=1)
    further = math.ceil(shown / columns) - 1
    return {"columns": columns, "columnPadding": 10 + round(0.15 * longest)}, further * _ROW


def _legend_titles(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        title = (part.get("legend") or {}).get("title")
        if isinstance(title, str):
            yield title
        for key, value in part.items():
            if key not in ("datasets", "data"):
                yield from _legend_titles(value)
    elif isinstance(part, list):
        for value in part:
            yield from _legend_titles(value)


def _lists(part: Any, keys: Sequence[str]) -> Iterator[list[str]]:
    """The lists of names that the scales and axes of a specification have; data has none.

    Not of an axis that has a way of its own to make its labels fit.
    """
    if isinstance(part, dict):
        if "labelExpr" in (part.get("axis") or {}):
            return
        for key, value in part.items():
            if key in keys and isinstance(value, list) and all(isinstance(name, str) for name in value):
                yield value
            elif key not in ("datasets", "data"):
                yield from _lists(value, keys)
    elif isinstance(part, list):
        for value in part:
            yield from _lists(value, keys)


def _mapped(part: Any, change: Callable[[str], str]) -> Any:
    if isinstance(part, str):
        return change(part)
    if isinstance(part, dict):
        return {key: _mapped(value, change) for key, value in part.items()}
    return [_mapped(value, change) for value in part] if isinstance(part, list) else part


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
_THEME_SYMBOL = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 220}
CONFIG: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "padding": 2,
    "view": {"stroke": None},
    # The page says what points and bars show, under the pointer; nobody can point at a value of the others.
    **{mark: {"aria": False} for mark in ("area", "line", "rule", "text", "tick")},
    "axis": {"aria": False, **_LINES, **_TITLE, **_ROOM, "labelFontSize": 12},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {"aria": False, **_ABOVE, **_TITLE, **_THEME_SYMBOL, "labelColor": INK, "labelFontSize": 12},
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


# Axes for numbers with units: in one display unit, from zero or clearly not.

_ZOOM = 2.0  # values that lie closer than this factor are shown without the zero
FAR = 40.0  # and those that lie farther apart on a log scale

# Axis labels of seconds on a log scale, in the unit of each; constants only, no text from outside.
SECONDS = (
    "datum.value < 0.999e-6 ? format(datum.value * 1e9, '~r') + ' ns'"
    " : datum.value < 0.999e-3 ? format(datum.value * 1e6, '~r') + ' µs'"
    " : datum.value < 0.999 ? format(datum.value * 1e3, '~r') + ' ms'"
    " : format(datum.value, '~r') + ' s'"
)


# "1000" as in the tables, not "1,000"; long level names leave the axis little room on a phone.
PLAIN = alt.Axis(format="~r", tickCount=4)


def seconds_axis(values: Iterable[float]) -> alt.Axis:
    """Of a log scale, with each of ``decades`` in a unit of its own."""
    marks = decades(values)
    return alt.Axis(values=marks, tickCount=len(marks), labelExpr=SECONDS)


def above_rows(factor: str) -> alt.Axis:
    """The axis of rows that are levels of ``factor``, whose name stands above theirs."""
    return alt.Axis(
        title=title_of(factor),
        titleAlign="right",
        titleAngle=0,
        titleBaseline="bottom",
        titleX=-6,
        titleY=-6,
        grid=False,
    )


def decades(values: Iterable[float]) -> list[float]:
    """Ticks of a log axis: powers of ten, or 1, 2 and 5 of each where that gives few."""
    sizes = [value for value in values if value > 0]
    if not sizes:
        return []
    low, high = min(sizes), max(sizes)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    coarse = [10.0**power for power in powers]
    inside = [tick for tick in coarse if low / 1.5 <= tick <= high * 1.5]
    return inside if len(inside) >= 3 else [tick for tick in fine if low / 1.5 <= tick <= high * 1.5]


def log_axis(values: Iterable[float]) -> alt.Axis:
    """With a line for each of ``decades``; Vega's own has nine for each power of ten."""
    marks = decades(values)
    return alt.Axis(values=marks, tickCount=len(marks), format="~r")


def display_unit(values: Iterable[float], unit: str) -> fmt.Scale:
    """One unit for an axis: that of the largest value."""
    return fmt.scale(max((abs(value) for value in values), default=0.0), unit)


def finite(frame: pl.DataFrame, column: str = "value") -> pl.DataFrame:
    """The rows that an axis can show."""
    return frame.filter(pl.col(column).is_finite())


def axis_title(metric: str, unit: fmt.Scale, extra: str = "") -> str:
    """ "write.bandwidth (MiB/s, log scale)"."""
    inside = ", ".join(part for part in (unit.symbol, extra) if part)
    return f"{metric} ({inside})" if inside else metric


def fitting_scale(values: Iterable[float], *, log: bool | None = None) -> tuple[alt.Scale, str]:
    """A scale for ``values`` and what its title must say: if it isn't zero-based, the reader is told.

    ``log``: whether it has to be logarithmic, if that can show them; ``None``: if they lie far apart.
    """
    values = list(values)
    sizes = [value for value in values if value > 0]
    if any(value <= 0 for value in values):  # which no log axis can show
        return alt.Scale(zero=True, nice=True), ""
    if not sizes or log or (log is None and max(sizes) / min(sizes) > FAR):
        return (alt.Scale(type="log", nice=False, padding=8), "log scale") if sizes else (alt.Scale(zero=True), "")
    if max(sizes) / min(sizes) < _ZOOM:
        return alt.Scale(zero=False, nice=True), "not from zero"
    return alt.Scale(zero=True, nice=True), ""
