"""One chart of a report with its words; which cells share one; and charts as files, on white below their titles."""

from __future__ import annotations

import errno
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from storlab.analysis.summary import Summary
from storlab.base.text import grouped, plain
from storlab.records.files import write_whole
from storlab.report.charts.theme import FONT, INK, PAPER, WIDE, WIDTH, Chart, to_png, width_of
from storlab.report.document import Block, Figure, Group
from storlab.report.model.input import compared_factor, split_primary
from storlab.report.model.tables import heading


class Panel(NamedTuple):
    """A chart, with the place of a report where it belongs, and the name of those that it stands with, if any."""

    place: str
    group: str
    figure: Figure


def panel(place: str, name: str, group: str, title: str, alt: str, draw: Callable[[], Chart], **more: Any) -> Panel:
    """``name``: see ``file_stem``; ``more``: what else a ``Figure`` takes."""
    return Panel(place, group, Figure(name, title, alt, draw, about=group, **more))


def arranged(panels: Iterable[Panel]) -> dict[str, tuple[Block, ...]]:
    """The blocks of each place: charts that share a scale together. Of very many, the further ones are files only."""
    places: dict[str, list[Panel]] = {}
    for each in panels:
        there = places.setdefault(each.place, [])
        beyond = len(there) >= _MOST
        there.append(each._replace(figure=replace(each.figure, file=True)) if beyond else each)
    return {place: tuple(_blocks(of)) for place, of in places.items()}


def _blocks(panels: Iterable[Panel]) -> Iterator[Block]:
    for group, each in grouped((of.group, of.figure) for of in panels).items():
        yield from (Group(group, tuple(each)),) if group and not all(of.file for of in each) else each


_MOST = 24  # charts of a place: beyond that nobody looks, and the page grows heavy. The tables have all numbers


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


def write_charts(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every chart into ``folder``, which is made if it is missing.

    Both are on white with their title, and need no font or network: vl-convert brings its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, which may lead anywhere", str(folder))
    written = []
    for figure in figures:
        svg, png = folder / f"{figure.name}.svg", folder / f"{figure.name}.png"
        title = f"{figure.title}, {figure.about}" if figure.about and figure.title else figure.title or figure.about
        drawn = titled(figure.svg(WIDE if figure.wide else WIDTH), title)
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
