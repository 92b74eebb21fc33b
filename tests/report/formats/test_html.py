"""The page as a browser shows it, on a phone, on a desk, in the dark and on paper; and in a reader's hands.

It is clicked, typed into, worked by keys alone, and looked at with scripts off.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from storlab.report.formats import render
from storlab.report.model.input import ReportInput

from ..browser import Chromium, Tab
from ..hostile import hostile_run
from ..sample import sample
from ..samples import block_sample, series_sample
from ..vm_sample import vm_sample

in_browser = pytest.mark.needs("browser")
WIDTHS = (320, 375, 768, 1280, 1920)
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


@cache
def page_of(make: Callable[[], ReportInput]) -> str:
    """Drawn once, for all tests."""
    return render(make(), "html")


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(sample)


def written(folder: Path, page: str) -> Path:
    path = folder / "report.html"
    path.write_text(page, "utf-8")
    return path


@pytest.fixture
def tab(chromium: Chromium, tmp_path: Path) -> Iterator[Tab]:
    """A page with many tables."""
    with chromium.opened(written(tmp_path, page_of(vm_sample))) as tab:
        yield tab


@pytest.fixture
def charts(chromium: Chromium, page: str, tmp_path: Path) -> Iterator[Tab]:
    """A page whose charts have legends, wide ones among them."""
    with chromium.opened(written(tmp_path, page)) as tab:
        yield tab


def test_ids_are_unique_links_have_targets_and_no_address_or_script_is_of_anywhere_else(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="([^"]+)"', page)} <= set(ids)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', page)) <= set(ids)
    assert len(page) < 500_000
    assert page.index("ext4 has the highest write bandwidth (1.43× xfs, 5.21× btrfs)") < page.index("<table")
    assert not re.search(r"https?:|//\w|@import|\bsrc=|srcset|<link|<script .|<iframe", page)
    assert set(re.findall(r"url\(.", page)) <= {"url(#"}
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{own}'\"" in page


def test_every_colour_of_the_charts_has_an_answer_in_the_dark(page: str) -> None:
    style, body = (page + page_of(block_sample)).split("</style>", 1)
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{3,6})"', body))
    assert used and used <= set(re.findall(r'\[(?:fill|stroke)="(#[0-9a-f]{3,6})"\]', style))


@in_browser
def test_the_browser_has_nothing_to_complain_about(chromium: Chromium, page: str, tmp_path: Path) -> None:
    with chromium.opened(written(tmp_path, page)):
        assert chromium.complaints == []
    with chromium.opened(written(tmp_path, page.replace("</body>", "<script>alert(1)</script></body>"))):
        assert "Content Security Policy" in str(chromium.complaints), "which is heard"


def named_like_files() -> ReportInput:
    """As of files that are imported without labels, under a factor with a long name."""
    levels = ["mysql-12h-doublewrite-off", "mysql-12h-doublewrite-on"]
    return series_sample(levels, factor="innodb_flush_method_and_doublewrite")


@in_browser
@pytest.mark.parametrize(
    ("make", "charts", "narrow"),  # ".1" is narrow in any size
    [(sample, 20, 1), (vm_sample, 4, 1), (block_sample, 16, 2), (series_sample, 17, 1), (named_like_files, 17, 1)],
)
def test_a_page_fits_every_screen_and_no_text_lies_on_another(
    make: Callable[[], ReportInput], charts: int, narrow: int, chromium: Chromium, tmp_path: Path
) -> None:
    page = page_of(make).replace("<details>", "<details open>")
    with chromium.opened(written(tmp_path, page)) as tab:
        seen = [tab.measure(width) for width in WIDTHS]
    for width, each in zip(WIDTHS, seen, strict=True):
        each["small"] = [text for text in each["small"] if len(text) > narrow]
        nothing: dict[str, object] = {"wider": 0, "unnamed": 0, "overlaps": [], "small": [], "outside": []}
        assert each == {"width": width, "charts": charts, **nothing}


@in_browser
@pytest.mark.parametrize("text", ["very-long-" * 40, "W" * 300, "two words " * 30])
def test_long_names_do_not_widen_a_phones_page(text: str, chromium: Chromium, tmp_path: Path) -> None:
    with chromium.opened(written(tmp_path, render(hostile_run(text), "html"))) as tab:
        seen = tab.measure(375)
    assert (seen["wider"], seen["overlaps"]) == (0, [])


@in_browser
def test_dark_and_light_differ_and_both_show_something(charts: Tab) -> None:
    shots = []
    for scheme, colours in (
        ("light", ["rgb(255, 255, 255)", "rgb(36, 41, 47)"]),
        ("dark", ["rgb(20, 24, 29)", "rgb(230, 233, 237)"]),
    ):
        charts.prefer(scheme)
        assert charts.eval("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))") == colours
        shots.append(charts.screenshot())
    assert all(len(shot) > 100_000 for shot in shots), "a blank page packs into a few kilobytes"
    assert shots[0] != shots[1]


@pytest.mark.needs("browser", "pdftotext")
def test_on_paper_the_details_are_open(charts: Tab, tmp_path: Path) -> None:
    text = charts.printed(tmp_path / "page.pdf")
    assert all(part in text for part in ("mkfs.ext4", "[factors.filesystem]", "write.latency.p99.9"))


@in_browser
def test_everything_opens_and_closes_at_once_and_headings_sort_up_and_down_and_back(tab: Tab) -> None:
    studied = tab.eval(_SORTED)
    seen = []
    for _ in range(3):
        tab.click(_SORT)
        seen.append((tab.eval(f"{_SORT}.closest('th').ariaSort"), tab.eval(_SORTED)))
    (up, ascending), (down, descending), (none, again) = seen
    assert (up, down, none) == ("ascending", "descending", None)
    assert descending == ascending[::-1] and descending != ascending
    assert again == studied
    assert not any(tab.eval(_OPEN))
    tab.click(_FOLDS)
    assert all(tab.eval(_OPEN))
    tab.click(_FOLDS)
    assert not any(tab.eval(_OPEN))
    for ascending in ASCENDING:
        values = tab.eval(f"{json.dumps(ascending)}.map(valueOf)")
        assert None not in values and values == sorted(values) and len(set(values)) == len(values), ascending


ASCENDING = (
    ("640 µs", "4.00 ms", "0.4 s", "12 s", "59 s [1]", "1 min", "2 min 14 s", "1 h 3 min", "1 d 1 h", "10 d"),
    ("−1 h 3 min", "−2 min 14 s", "−12 s", "0.00 s"), ("1.00e−291 ns", "3.00 ms", "1.20e+20 s", "1.00e+300 s"),
    ("16.9 s to 40.0 s [1]", "1 min ±2 s", "2 min to 3 min"), ("▲ 0.98×", "▲ 1.20e+20×"),
    ("4.78 ±0.04 MiB/s", "1.20 GiB/s"),
)  # fmt: skip


@in_browser
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


@in_browser
@pytest.mark.parametrize("key", ["", " "])
def test_a_level_is_switched_off_and_on_again_in_its_chart(charts: Tab, key: str) -> None:
    charts.eval(f"{_LEVEL}.focus()")
    _switch(charts, key)
    off = charts.eval(_OFF)
    assert off > 0
    assert not charts.eval("[...document.querySelectorAll('.off')].some(mark => mark.checkVisibility())")
    assert charts.eval(f"{_LEVEL}.closest('.panel').querySelectorAll('.off').length") == off
    _switch(charts, key)
    assert charts.eval(_OFF) == 0


@in_browser
def test_a_chart_that_is_there_twice_shows_one_row_of_switches(charts: Tab) -> None:
    for width in (1280, 600):
        charts.resize(width)
        seen = charts.eval(_SWITCHES)
        assert {row["chart"] == row["switches"] for row in seen} == {True}
        assert {row["chart"] for row in seen} == {True, False}


_SCALE = "document.querySelector('#time .scale')"
_DRAWN = """[...document.querySelectorAll('#time .scales:has(.scale) .drawn')].filter(e => e.checkVisibility()).map(
    e => e.classList.contains('log'))"""


@in_browser
def test_both_scales_of_a_chart_are_drawn_and_a_switch_shows_the_other_and_back(charts: Tab) -> None:
    seen = []
    for _ in range(3):
        seen.append((charts.eval(f"{_SCALE}.textContent"), charts.eval(_DRAWN)[0]))
        charts.click(_SCALE)
    assert seen == [("Log scale", False), ("Linear scale", True), ("Log scale", False)]


@in_browser
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


@in_browser
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


@in_browser
def test_without_scripts_all_is_there_and_no_control_that_does_nothing(chromium: Chromium, tmp_path: Path) -> None:
    with chromium.opened(written(tmp_path, page_of(vm_sample)), scripts=False) as tab:
        assert tab.eval("document.querySelectorAll('button, input, .tip').length") == 0 and tab.eval(_HIDDEN) == 0
        tab.click("document.querySelector('main summary')")
        assert tab.eval(_OPEN)[0]
