"""Pages on suites in Chromium: axe finds nothing, nothing is wider than the window, by day and by night."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from storlab.report.suite.formats import render
from storlab.suite.model import Leak, Outcome
from study.program import call
from suite.samples import RUNFILE, suite_of
from suite.test_records import of, written

from ..devtools import opened
from .test_html_accessibility import _FAINT, _HEADLESS, _axe, _violations

LOGS = Path(__file__).parents[3] / "examples/suite/logs"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        folder / "run",
        suite,
        lost,
        of(suite, 1, leaks=[Leak("process", "sleep", suite.groups[0].tests[0].path)]),
        of(suite, 2, Outcome.SKIP),
    )
    (folder / "report.html").write_text(render(run, "html"))
    return folder


@pytest.mark.parametrize("name", ["compare", "one", "history", "report"])
def test_pages_on_suites_can_be_read_by_everybody(name: str, pages: Path, tmp_path: Path) -> None:
    with opened(pages / f"{name}.html", tmp_path) as tab:
        tab.eval(f"{_axe()}; null")
        assert tab.eval(_HEADLESS) == 0
        for scheme in ("light", "dark"):
            tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            assert (scheme, tab.eval(_FAINT)) == (scheme, [])
            assert (scheme, _violations(tab)) == (scheme, [])
            for width in (1440, 768, 375):
                screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                tab.call("Emulation.setDeviceMetricsOverride", **screen)
                wider = tab.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert (scheme, width, wider) == (scheme, width, 0)
                if kept := os.environ.get("STORLAB_SCREENSHOTS"):
                    shot = tab.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                    (Path(kept) / f"{name}-{width}-{scheme}.png").write_bytes(base64.b64decode(shot))
