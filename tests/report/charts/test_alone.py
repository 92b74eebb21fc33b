"""A chart as a file of its own: the page's drawing with a title above."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storlab.report.charts import all_panels
from storlab.report.charts.panel import titled, write_charts
from storlab.report.charts.theme import to_png
from storlab.report.formats.html import page_of
from storlab.text import plain

from ..hostile import invisible
from ..sample import sample

DRAWN = (
    '<svg xmlns="http://www.w3.org/2000/svg" class="marks" width="360" height="100" viewBox="0 0 360 100"><g/></svg>'
)
_SVG = "{http://www.w3.org/2000/svg}"


def lines(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_the_title_stands_above_the_drawing_which_stays_as_it_is() -> None:
    root = ET.fromstring(titled(DRAWN, "Histogram, tps"))
    assert root.get("width") == "360"
    assert root.get("viewBox") == f"0 0 360 {root.get('height')}"
    below = root.find(f"{_SVG}g")
    assert below is not None
    assert below.get("transform") == f"translate(0,{int(root.get('height') or 0) - 100})"
    assert [child.tag for child in below] == [f"{_SVG}g"]


def test_a_title_that_is_too_long_for_its_chart_takes_several_lines() -> None:
    title = "Quantiles of on against off, transactions per second under random writes of 4k"
    assert len(lines(titled(DRAWN, title))) == 2
    assert " ".join(lines(titled(DRAWN, title))) == title


def test_a_chart_without_a_title_is_as_high_as_its_drawing() -> None:
    assert 'height="100"' in titled(DRAWN, "")


@settings(max_examples=200)
@given(title=st.text(max_size=120) | invisible, width=st.integers(1, 2000))
@example(title="🏻", width=360)
@example(title="漢字", width=1)
def test_any_title_gives_a_document_that_can_be_read(title: str, width: int) -> None:
    drawn = DRAWN.replace("360", str(width))
    assert "".join("".join(lines(titled(drawn, title))).split()) == "".join(plain(title).split())


def test_titles_that_look_like_markup_or_have_rare_characters_are_drawn() -> None:
    assert to_png(titled(DRAWN, 'a <b> & "c" 😀 \x00\x1b[1m')).startswith(b"\x89PNG")


def test_page_and_files_share_one_drawing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[int] = []

    def counted(chart: object, *, width: int = 360) -> str:
        drawn.append(width)
        return DRAWN.replace("360", str(width))

    monkeypatch.setattr("storlab.report.charts.panel.to_svg", counted)
    run = sample()
    panels = all_panels(run)
    page_of(run, panels)
    write_charts(panels, tmp_path)
    assert len(drawn) == sum(2 if panel.wide else 1 for panel in panels)
