"""The page, as a browser sees it: on a phone, on a desk, in the dark and on paper."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from storlab.report.formats import render
from storlab.report.model.input import ReportInput

from ..block_sample import block_sample
from ..browser import DARK, Browser
from ..hostile import hostile_run
from ..sample import sample
from ..series_sample import series_sample
from ..vm_sample import vm_sample


@cache
def page_of(make: Callable[[], ReportInput]) -> str:
    """Drawn once, for all widths."""
    return render(make(), "html")


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(sample)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture
def file(page: str, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_text(page, "utf-8")
    return path


def test_the_page_names_no_address_outside_itself(page: str) -> None:
    assert not re.search(r"https?:|//\w|@import|\bsrc=|srcset|<link|<script .|<iframe", page)
    assert set(re.findall(r"url\(.", page)) <= {"url(#"}


def test_the_page_comes_with_a_policy_that_forbids_requests_and_every_script_but_its_own(page: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{own}'\"" in page


def test_ids_are_unique_and_every_link_has_its_target(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="([^"]+)"', page)} <= set(ids)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', page)) <= set(ids)


def test_the_page_stays_light(page: str) -> None:
    assert len(page) < 500_000


def test_the_answer_stands_before_every_table(page: str) -> None:
    assert page.index("ext4 has the highest write bandwidth (1.43× xfs, 5.21× btrfs)") < page.index("<table")


def test_the_browser_has_nothing_to_complain_about(browser: Browser, file: Path) -> None:
    assert browser.console(file) == []


@pytest.mark.parametrize("width", [320, 375, 768, 1280, 1920])
def test_nothing_sticks_out_and_no_text_lies_on_another(browser: Browser, page: str, width: int) -> None:
    seen = browser.measure(page, width)
    assert seen["width"] == width
    assert seen["scroll"] <= width
    assert seen["charts"] == 24
    assert seen["unnamed"] == 0
    assert seen["overlaps"] == []
    assert seen["small"] == []
    assert seen["outside"] == []


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_a_page_of_virtual_machines_fits_every_screen(browser: Browser, width: int) -> None:
    seen = browser.measure(page_of(vm_sample), width)
    assert seen["scroll"] <= width
    assert seen["unnamed"] == 0
    assert seen["overlaps"] == []
    assert seen["outside"] == []


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_a_page_of_block_io_fits_every_screen(browser: Browser, width: int) -> None:
    seen = browser.measure(page_of(block_sample), width)
    assert seen["scroll"] <= width
    assert seen["unnamed"] == 0
    assert seen["overlaps"] == []
    assert [text for text in seen["small"] if len(text) > 2] == []  # ".1" is narrow in any size
    assert seen["outside"] == []


def named_like_files() -> ReportInput:
    """As of files that are imported without labels, under a factor with a long name."""
    levels = ["mysql-12h-doublewrite-off", "mysql-12h-doublewrite-on"]
    return series_sample(levels, factor="innodb_flush_method_and_doublewrite")


@pytest.mark.parametrize("make", [series_sample, named_like_files])
@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_a_page_of_two_long_trials_fits_every_screen(
    browser: Browser, make: Callable[[], ReportInput], width: int
) -> None:
    seen = browser.measure(page_of(make).replace("<details>", "<details open>"), width)
    assert seen["scroll"] <= width
    assert seen["charts"] == 16
    assert seen["unnamed"] == 0
    assert seen["overlaps"] == []
    assert seen["small"] == []
    assert seen["outside"] == []


@pytest.mark.parametrize("text", ["very-long-" * 40, "W" * 300, "two words " * 30])
def test_long_names_do_not_widen_a_phones_page(browser: Browser, text: str) -> None:
    seen = browser.measure(render(hostile_run(text), "html"), 375)
    assert seen["scroll"] <= 375
    assert seen["overlaps"] == []


def test_dark_and_light_differ_and_both_show_something(browser: Browser, page: str, file: Path) -> None:
    light, dark = browser.measure(page, 1280), browser.measure(page, 1280, DARK)
    assert (light["background"], light["ink"]) == ("rgb(255, 255, 255)", "rgb(36, 41, 47)")
    assert (dark["background"], dark["ink"]) == ("rgb(20, 24, 29)", "rgb(230, 233, 237)")
    shots = browser.screenshot(file), browser.screenshot(file, DARK)
    assert all(len(shot) > 100_000 for shot in shots), "a blank page packs into a few kilobytes"
    assert shots[0] != shots[1]


def test_every_colour_of_the_charts_has_an_answer_in_the_dark(page: str) -> None:
    style, body = (page + page_of(block_sample)).split("</style>", 1)
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{3,6})"', body))
    assert used
    assert used <= set(re.findall(r'\[(?:fill|stroke)="(#[0-9a-f]{3,6})"\]', style))


def test_on_paper_the_details_are_open(browser: Browser, file: Path) -> None:
    text = browser.printed(file)
    assert "mkfs.ext4" in text
    assert "[factors.filesystem]" in text
    assert "write.latency.p99.9" in text
