"""One chart of a report with its words; which cells share one; and charts as files, on white below their titles."""

from __future__ import annotations

import errno
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from storlab.analysis.summary import Summary
from storlab.records.files import write_whole
from storlab.report.charts.kind import Kind
from storlab.report.charts.names import width_of
from storlab.report.charts.theme import FONT, INK, PAPER, WIDE, WIDTH, Chart, to_png, to_svg
from storlab.report.model.input import compared_factor
from storlab.report.model.tables import heading
from storlab.report.model.view import split_primary
from storlab.text import plain


@dataclass(frozen=True)
class Panel:
    """``name`` is a file's stem, unique in a report. ``alt`` says in words what the chart shows.

    ``draw`` makes the chart: a report may show fewer than there are. What it is drawn as is kept, for page and files.
    ``aside``: not what the study is about. ``wide``: needs the whole width of a page, where there is so much.
    """

    kind: Kind
    name: str
    group: str  # of charts that belong together; may be empty
    title: str
    alt: str
    draw: Callable[[], Chart]
    aside: bool = False
    wide: bool = False

    @property
    def width(self) -> int:
        return WIDE if self.wide else WIDTH

    @property
    def full_title(self) -> str:
        return f"{self.title}, {self.group}" if self.group else self.title

    @cached_property
    def chart(self) -> Chart:
        return self.draw()

    @cached_property
    def svg(self) -> str:
        """The chart as wide as it wants to be."""
        return to_svg(self.chart, width=self.width)

    @cached_property
    def slim_svg(self) -> str:
        """The chart for a page that is as narrow as a phone's."""
        return to_svg(self.chart, width=WIDTH) if self.wide else self.svg


@dataclass(frozen=True)
class Combination:
    """Cells of one primary metric under one load: level of the compared factor → cell."""

    source: str
    metric: str
    unit: str
    better: str
    within: tuple[tuple[str, str], ...]
    cells: Mapping[str, int]

    @property
    def title(self) -> str:
        return heading(self.metric, self.source, dict(self.within))


def all_levels(summary: Summary, factor: str) -> list[str]:
    """Levels of ``factor`` in the study's order, measured or not: a level keeps its colour in every chart."""
    cells = [*(c.levels for c in summary.cells), *(e.levels for e in summary.estimates)]
    return list(dict.fromkeys(levels[factor] for levels in cells if factor in levels)) or ["all"]


def combinations(summary: Summary) -> list[Combination]:
    """Every primary metric under every load, in the study's order."""
    factor = compared_factor(summary)
    groups: dict[tuple[str, str, str, str, tuple[tuple[str, str], ...]], dict[str, int]] = {}
    for e in split_primary(summary)[0]:
        within = tuple((name, level) for name, level in e.levels.items() if name != factor)
        key = (e.source, e.metric, e.unit, e.better, within)
        groups.setdefault(key, {})[e.levels.get(factor, "all")] = e.cell
    return [Combination(*key, cells=cells) for key, cells in groups.items()]


def file_stem(kind: str, parts: Sequence[str], taken: set[str]) -> str:
    """A file's name from names of levels, which may hold anything: letters, digits and dashes only, never twice."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    stem = "-".join([kind, *(word for word in words if word)])[:80]
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    taken.add(name)
    return name


_ROOT = re.compile(r'(<svg\b[^>]*?) width="(\d+)" height="(\d+)" viewBox="[^"]*"([^>]*>)')
_TITLE_SIZE, _LINE = 14, 17  # px
_GAP = 5  # px, between the title and the chart


def write_charts(panels: Iterable[Panel], folder: Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every chart into ``folder``, which is made where it is missing.

    Both are on white with their title, and need no font or network: vl-convert brings its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, which may lead anywhere", str(folder))
    written = []
    for panel in panels:
        svg, png = folder / f"{panel.name}.svg", folder / f"{panel.name}.png"
        drawn = titled(panel.svg, panel.full_title)
        write_whole(svg, drawn.encode())
        write_whole(png, to_png(drawn))
        written += [svg, png]
    return written


def titled(svg: str, title: str) -> str:
    """``svg``, as ``to_svg`` gives it, as a document with ``title`` above, in as many lines as that needs."""
    root = _ROOT.match(svg)
    if root is None:
        raise AssertionError("vl-convert gave an SVG without a size")
    width, height = int(root[2]), int(root[3])
    lines = _title_lines(plain(title), width)
    top = len(lines) * _LINE + _GAP if lines else 0
    opening = f'{root[1]} width="{width}" height="{height + top}" viewBox="0 0 {width} {height + top}"{root[4]}'
    words = "".join(_title_line(line, (number + 1) * _LINE - 4) for number, line in enumerate(lines))
    paper = f'<rect width="{width}" height="{height + top}" fill="{PAPER}"/>'
    body = svg[root.end() :].removesuffix("</svg>")
    return f'{opening}{paper}{words}<g transform="translate(0,{top})">{body}</g></svg>'


def _title_lines(title: str, width: int) -> list[str]:
    """``title`` in lines that fit, by the width that its letters have on average: some have none."""
    letters = width * len(title) / max(width_of(title, _TITLE_SIZE), 1)
    return textwrap.wrap(title, max(1, int(letters)))


def _title_line(line: str, baseline: int) -> str:
    style = f'font-family="{FONT}" font-size="{_TITLE_SIZE}px" font-weight="bold" fill="{INK}"'
    return f'<text x="2" y="{baseline}" {style}>{escape(line)}</text>'
