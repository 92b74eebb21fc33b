"""The page in a reader's hands: clicked, typed into, worked by keys alone, and with scripts off."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from storlab.report.formats import render

from ..devtools import Tab, opened
from ..sample import sample
from ..vm_sample import vm_sample

_FILTER = "document.querySelector('.filter')"
_FILTERED = f"[...{_FILTER}.parentNode.querySelector('table').tBodies[0].rows]"
_SORT = "document.querySelector('.sort')"
_SORTED = f"[...{_SORT}.closest('table').tBodies[0].rows].map(row => row.cells[0].textContent)"
_FOLDS = "document.querySelector('.folds')"
_OPEN = "[...document.querySelectorAll('main details')].map(fold => fold.open)"
_LEVEL = "document.querySelector('.levels input')"
_SWITCHES = """[...document.querySelectorAll(".panel .levels")].map(
    row => ({switches: row.checkVisibility(), chart: row.nextElementSibling.checkVisibility()}))"""
_HIDDEN = """[...document.querySelectorAll("main table, main h2")].filter(
    e => !e.checkVisibility() && !e.closest("details")).length"""
_OFF = "document.querySelectorAll('.off').length"

# What is under the keys can be seen: on the screen, with a ring around it.
_RINGED = """(e => { const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    return box.width > 1 && box.height > 1 && box.left < innerWidth && box.right > 0
        && (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) })(document.activeElement)"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(vm_sample(), "html"), "utf-8")
    return path


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose charts have legends, wide ones among them."""
    path = tmp_path_factory.mktemp("charts") / "report.html"
    path.write_text(render(sample(), "html"), "utf-8")
    return path


@pytest.fixture
def tab(file: Path, tmp_path: Path) -> Iterator[Tab]:
    with opened(file, tmp_path) as tab:
        yield tab


def test_clicks_on_a_heading_sort_up_and_down_and_back(tab: Tab) -> None:
    studied = tab.eval(_SORTED)
    seen = []
    for _ in range(3):
        tab.click(_SORT)
        seen.append((tab.eval(f"{_SORT}.closest('th').ariaSort"), tab.eval(_SORTED)))
    (up, ascending), (down, descending), (none, again) = seen
    assert (up, down, none) == ("ascending", "descending", None)
    assert descending == ascending[::-1]
    assert descending != ascending
    assert again == studied


@pytest.mark.parametrize(
    "ascending",
    [
        ("640 µs", "4.00 ms", "0.4 s", "12 s", "59 s [1]", "1 min", "2 min 14 s", "1 h 3 min", "1 d 1 h", "10 d"),
        ("−1 h 3 min", "−2 min 14 s", "−12 s", "0.00 s"),
        ("1.00e−291 ns", "3.00 ms", "1.20e+20 s", "1.00e+300 s"),
        ("16.9 s to 40.0 s [1]", "1 min ±2 s", "2 min to 3 min"),
        ("▲ 0.98×", "▲ 1.20e+20×"),
        ("4.78 ±0.04 MiB/s", "1.20 GiB/s"),
    ],
)
def test_what_is_sorted_by_is_the_whole_of_a_number(tab: Tab, ascending: tuple[str, ...]) -> None:
    values = tab.eval(f"{json.dumps(ascending)}.map(valueOf)")
    assert None not in values and values == sorted(values) and len(set(values)) == len(values)


def test_the_filter_leaves_the_rows_that_have_all_its_words(tab: Tab) -> None:
    rows = tab.eval(f"{_FILTERED}.map(row => row.textContent)")
    word = tab.eval(f"{_FILTERED}.at(-1).cells[0].textContent")
    tab.click(_FILTER)
    tab.call("Input.insertText", text=word.upper())
    left = tab.eval(f"{_FILTERED}.filter(row => row.checkVisibility()).map(row => row.textContent)")
    assert left == [row for row in rows if all(part in row.lower() for part in word.lower().split())]
    assert 0 < len(left) < len(rows)
    tab.eval(f"{_FILTER}.select()")
    tab.call("Input.insertText", text="no row has this")
    assert not tab.eval(f"{_FILTERED}.some(row => row.checkVisibility())")


def _switch(tab: Tab, key: str) -> None:
    """Use the first switch of a level: by ``key``, or else by a click."""
    if key:
        tab.press(key)
    else:
        tab.click(_LEVEL)


@pytest.mark.parametrize("key", ["", " "])
def test_a_level_is_switched_off_and_on_again_in_its_chart(charts: Path, tmp_path: Path, key: str) -> None:
    with opened(charts, tmp_path) as tab:
        tab.eval(f"{_LEVEL}.focus()")
        _switch(tab, key)
        off = tab.eval(_OFF)
        assert off > 0
        assert not tab.eval("[...document.querySelectorAll('.off')].some(mark => mark.checkVisibility())")
        assert tab.eval(f"{_LEVEL}.closest('.panel').querySelectorAll('.off').length") == off
        _switch(tab, key)
        assert tab.eval(_OFF) == 0


@pytest.mark.parametrize("width", [1280, 600])
def test_a_chart_that_is_there_twice_shows_one_row_of_switches(charts: Path, tmp_path: Path, width: int) -> None:
    with opened(charts, tmp_path, width=width) as tab:
        seen = tab.eval(_SWITCHES)
        assert {row["chart"] == row["switches"] for row in seen} == {True}
        assert {row["chart"] for row in seen} == {True, False}


_SCALE = "document.querySelector('#time .scale')"
_CHART = f"{_SCALE}.closest('.panel').querySelector('svg.chart')"
_TICKS = f"""[...{_CHART}.querySelectorAll('.role-axis-label text')]
    .filter(t => t.getAttribute('visibility') !== 'hidden')
    .map(t => [+t.textContent, ...t.getAttribute('transform').match(/-?[\\d.]+/g).map(Number)])
    .filter(([, x]) => x < 0).map(([value, , y]) => [value, y])"""
_DRAWN = f"{_CHART}.outerHTML"


def test_a_chart_changes_to_a_logarithmic_scale_and_back(charts: Path, tmp_path: Path) -> None:
    with opened(charts, tmp_path) as tab:
        linear, drawn = tab.eval(_TICKS), tab.eval(_DRAWN)
        (first, second, *_), last = linear, linear[-1]
        assert (second[1] - first[1]) / (last[1] - first[1]) == pytest.approx(second[0] / last[0], abs=0.02)
        tab.click(_SCALE)
        assert tab.eval(f"{_SCALE}.ariaPressed") == "true"
        ticks = sorted((value, at) for value, at in tab.eval(_TICKS) if value > 0)
        assert len(ticks) >= 3
        assert tab.eval(_DRAWN) != drawn
        (low, at), (high, above) = ticks[0], ticks[-1]
        for value, place in ticks:  # half a pixel, by which labels are placed
            share = math.log(value / low) / math.log(high / low)
            assert place == pytest.approx(at + share * (above - at), abs=0.6), ticks
        tab.click(_SCALE)
        assert tab.eval(_DRAWN) == drawn


def test_everything_opens_and_closes_at_once(tab: Tab) -> None:
    assert not any(tab.eval(_OPEN))
    tab.click(_FOLDS)
    assert all(tab.eval(_OPEN))
    tab.click(_FOLDS)
    assert not any(tab.eval(_OPEN))


def test_keys_alone_reach_every_control_and_show_where_they_are(tab: Tab) -> None:
    tab.eval("window.met = new Set()")
    reachable = (
        "[...document.querySelectorAll('a, button, input, summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility())"
    )
    for _ in range(tab.eval(f"{reachable}.length")):
        tab.press("Tab")
        assert tab.eval(_RINGED), tab.eval("document.activeElement.outerHTML.slice(0, 200)")
        tab.eval("met.add(document.activeElement), null")
    assert tab.eval(f"{reachable}.filter(e => !met.has(e)).map(e => e.outerHTML.slice(0, 200))") == []


@pytest.mark.parametrize("key", ["Enter", " "])
def test_keys_alone_work_the_controls(tab: Tab, key: str) -> None:
    tab.eval(f"{_SORT}.focus()")
    tab.press(key)
    assert tab.eval(f"{_SORT}.closest('th').ariaSort") == "ascending"
    tab.eval(f"{_FOLDS}.focus()")
    tab.press(key)
    assert all(tab.eval(_OPEN))
    tab.eval("document.querySelector('main summary').focus()")
    tab.press(key)
    assert not tab.eval(_OPEN)[0]


def test_without_scripts_all_is_there_and_no_control_that_does_nothing(file: Path, tmp_path: Path) -> None:
    with opened(file, tmp_path, scripts=False) as tab:
        assert tab.eval("document.querySelectorAll('button, input, .tip').length") == 0
        assert tab.eval(_HIDDEN) == 0
        tab.click("document.querySelector('main summary')")
        assert tab.eval(_OPEN)[0]
