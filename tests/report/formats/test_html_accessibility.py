"""Whether everybody can read the page: contrast by WCAG 2.2 AA (1.4.3), names, headings and tables in order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from storlab.report.formats import render

from ..devtools import opened
from ..sample import sample

# Texts with less contrast than 4.5 (3 where large), by https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio. A canvas turns
# any CSS colour into sRGB bytes, and lays translucent grounds over each other. A chart's texts count as on paper:
# this page has no heat map, whose numbers stand on cells.
_FAINT = """(() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = colours => {
    for (const c of colours) { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = e => e ? [...grounds(e.parentElement), getComputedStyle(e).backgroundColor] : ["white"];
  const faint = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest("script")) continue;
    const style = getComputedStyle(e), under = grounds(e);
    const ink = e instanceof SVGElement ? style.fill : style.color;
    const [dim, bright] = [light(paint(under)), light(paint([...under, ink]))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (bright + 0.05) / (dim + 0.05);
    if (ratio < (large ? 3 : 4.5)) faint.add(`${e.outerHTML.slice(0, 99)} ${ratio.toFixed(2)}`);
  }
  return [...faint];
})()"""

_UNNAMED = """[...document.querySelectorAll(
    "a, button, input, summary, nav, [role=region], [role=img], main > section")]
  .filter(e => !(e.getAttribute("aria-label") || e.closest("label")?.textContent.trim() || e.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 200))"""
_HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => [+h.tagName[1], h.textContent])"
_HEADLESS = """[...document.querySelectorAll("table")].filter(
    t => !t.tHead || [...t.querySelectorAll("th")].some(th => !th.scope)).length"""
_LANDMARKS = "['header', 'nav', 'main'].map(name => document.querySelectorAll(`body > ${name}`).length)"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(sample(), "html"), "utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(file: Path, tmp_path: Path, scheme: str) -> None:
    with opened(file, tmp_path) as tab:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.eval("document.querySelector('.folds').click()")
        assert tab.eval(_FAINT) == []
        tab.eval("document.body.style.color = '#888', document.body.style.background = '#999'")
        assert tab.eval(_FAINT), "the measure sees what is faint"


def test_controls_have_names_headings_an_order_tables_headers_and_parts_landmarks(file: Path, tmp_path: Path) -> None:
    with opened(file, tmp_path) as tab:
        assert tab.eval(_UNNAMED) == []
        levels = tab.eval(_HEADINGS)
        assert levels[0][0] == 1
        skipped = [lower for (upper, _), lower in pairwise(levels) if lower[0] > upper + 1]
        assert skipped == []
        assert tab.eval(_HEADLESS) == 0
        assert tab.eval(_LANDMARKS) == [1, 1, 1]
