"""Whether everybody can read a page: contrast by WCAG 2.2 AA (1.4.3), names, headings and tables in order; and axe.

axe-core (https://github.com/dequelabs/axe-core) goes by rules, in the page as Chromium shows it; of contrast within
charts, whose numbers stand on cells, it knows nothing.
"""

from collections.abc import Callable
from importlib.metadata import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from laboratory.samples import sample as file_of
from storlab.report.formats import render
from storlab.report.model.input import ReportInput
from storlab.suites.model import Leak, Outcome
from storlab.suites.report.formats import render as render_suite
from study.program import call
from suite.samples import RUNFILE, suite_of
from suite.test_records import of, written

from ..browser import Chromium, Tab
from ..sample import sample
from ..samples import sweep_sample

pytestmark = pytest.mark.needs("browser")
LOGS = Path(__file__).parents[3] / "examples/suite/logs"

# Texts with less contrast than 4.5 (3 where large), by https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio. A canvas turns
# any CSS colour into sRGB bytes, and lays translucent grounds over each other. A chart's text stands on
# the topmost mark that its middle lies in, such as a cell of a heat map, and else on paper.
_FAINT = file_of(__file__, "../cases/faint.js")

_UNNAMED = """[...document.querySelectorAll(
    "a, button, input, summary, nav, [role=group], [role=img], main > section")]
  .filter(e => !(e.getAttribute("aria-label") || e.closest("label")?.textContent.trim() || e.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 200))"""
_HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => [+h.tagName[1], h.textContent])"
_HEADLESS = """[...document.querySelectorAll("table")].filter(
    t => !t.tHead || [...t.querySelectorAll("th")].some(th => !th.scope)).length"""
_LANDMARKS = "['header', 'nav', 'main'].map(name => document.querySelectorAll(`body > ${name}`).length)"


def _violations(tab: Tab) -> list[tuple[str, str]]:
    """What axe-core has to say: the rule, and the first element. A package for another browser driver brings it."""
    (script,) = (file for file in files("axe-playwright-python") or () if file.name == "axe.min.js")
    tab.eval(f"{script.read_text('utf-8')}; null")
    found: list[dict[str, Any]] = tab.eval("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in found]


def _check_that_all_can_be_read(tab: Tab) -> None:
    assert tab.eval(_HEADLESS) == 0
    for scheme in ("light", "dark"):
        tab.prefer(scheme)
        assert (scheme, tab.eval(_FAINT)) == (scheme, [])
        assert (scheme, _violations(tab)) == (scheme, [])


@pytest.mark.parametrize("make", [sample, sweep_sample], ids=["most charts and tables", "a heat map"])
def test_everybody_can_read_a_report(make: Callable[[], ReportInput], chromium: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(make(), "html"), "utf-8")
    with chromium.opened(page) as tab:
        assert tab.eval(_UNNAMED) == []
        levels = tab.eval(_HEADINGS)
        assert levels[0][0] == 1
        assert [lower for (upper, _), lower in pairwise(levels) if lower[0] > upper + 1] == [], "none is skipped"
        assert tab.eval(_LANDMARKS) == [1, 1, 1]
        tab.eval("document.querySelector('.folds').click()")
        _check_that_all_can_be_read(tab)
        tab.eval("document.body.style.color = '#888', document.body.style.background = '#999'")
        assert tab.eval(_FAINT), "the measure sees what is faint"
        assert "color-contrast" in dict(_violations(tab)), "axe sees it, too"


@pytest.fixture(scope="module")
def suite_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    before, after = str(LOGS / "before"), str(LOGS / "after")
    call("suite", "compare", before, after, "--format", "html", "-o", str(folder / "compare.html"))
    one = (f"{before}/1.log", f"{after}/1.log")
    call("suite", "compare", *one, "--format", "html", "-o", str(folder / "one.html"))
    call("suite", "history", before, "--all", "--format", "html", "-o", str(folder / "history.html"))
    suite = suite_of(RUNFILE)
    (folder / "run").mkdir()
    lost = of(suite, 0, Outcome.CRASHED, reason="the guest's kernel panicked: oops", folder="output/x", guest="g1")
    run = written(
        folder / "run", suite, lost, of(suite, 1, leaks=[Leak("process", "sleep", suite.groups[0].tests[0].path)]),
        of(suite, 2, Outcome.SKIP),
    )  # fmt: skip
    (folder / "report.html").write_text(render_suite(run, "html"))
    return folder


@pytest.mark.parametrize("name", ["compare", "one", "history", "report"])
def test_everybody_can_read_a_page_on_suites(name: str, suite_pages: Path, chromium: Chromium) -> None:
    with chromium.opened(suite_pages / f"{name}.html") as tab:
        _check_that_all_can_be_read(tab)
        for width in (1440, 768, 375):
            assert (width, tab.measure(width)["wider"]) == (width, 0)
