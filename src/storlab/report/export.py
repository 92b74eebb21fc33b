"""Every chart of a report as SVG and PNG files, for slides, papers and wikis."""

from __future__ import annotations

from pathlib import Path

from storlab.report.input import ReportInput


def write_charts(given: ReportInput, folder: Path) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png`` of every chart into ``folder``, which is made where it is missing.

    Both are on white with their title, and need no font or network: vl-convert brings its own.
    """
    from storlab.report.charts import all_panels  # Altair takes half a second: only who exports pays for it
    from storlab.report.charts.theme import to_png, to_svg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for panel in all_panels(given):
        svg, png = folder / f"{panel.name}.svg", folder / f"{panel.name}.png"
        drawn = to_svg(panel.draw(), title=panel.full_title, background="#ffffff", width=panel.width)
        svg.write_text(drawn, "utf-8")
        png.write_bytes(to_png(drawn))
        written += [svg, png]
    return written
