"""Every chart of a report as SVG and PNG files, for slides, papers and wikis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from storlab.report.charts import Panel
from storlab.report.charts.alone import titled
from storlab.report.charts.theme import to_png


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
