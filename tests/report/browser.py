"""A page as headless Chromium sees it."""

from __future__ import annotations

import html
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tools import tool

FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
DARK = "--blink-settings=preferredColorScheme=0"

# What a frame measures of itself. Texts that lie on each other are counted within one chart at a time.
_MEASURE = """
<script>
addEventListener("load", () => {
  // Of a chart that is there for wide and for narrow pages, one is shown.
  const shown = chart => chart.checkVisibility() || chart.closest("details:not([open])");
  const charts = [...document.querySelectorAll("svg.chart")].filter(shown);
  const overlaps = [], small = [], outside = [];
  for (const chart of charts) {
    const boxes = [...chart.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => {
      if (Math.min(p.width, p.height) < 8 && a.length > 1) small.push(a);
      if (p.left < 0 || p.right > innerWidth) outside.push(a);
      for (const [b, q] of boxes.slice(i + 1)) {
        const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        if (across > 1 && down > 3) overlaps.push([a, b]);
      }
    });
  }
  const root = document.documentElement;
  parent.postMessage({
    width: innerWidth, scroll: root.scrollWidth, height: root.scrollHeight, charts: charts.length,
    background: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color, overlaps, small, outside,
    unnamed: charts.filter(c => !c.getAttribute("aria-label")).length,
  }, "*");
});
</script>
"""


@dataclass(frozen=True)
class Browser:
    """Runs Chromium with its own profile in ``folder``."""

    folder: Path

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [tool("chromium"), *FLAGS, f"--user-data-dir={self.folder / 'profile'}", *flags]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    def console(self, page: Path) -> list[str]:
        """Everything that the page makes the browser complain about."""
        done = self.run("--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri())
        return [line for line in done.stderr.split("\n") if "CONSOLE" in line]

    def measure(self, page: str, width: int, *flags: str) -> dict[str, Any]:
        """What ``page`` measures of itself in a frame of ``width``: Chromium's own window can't be so narrow."""
        allowed = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
        (self.folder / "copy.html").write_text(allowed.replace("</body>", f"{_MEASURE}</body>"), "utf-8")
        outer = self.folder / "outer.html"
        outer.write_text(
            "<!doctype html><pre></pre><script>onmessage = e => "
            "document.querySelector('pre').textContent = JSON.stringify(e.data)</script>"
            f'<iframe src="copy.html" style="width:{width}px;height:4000px;border:0"></iframe>',
            "utf-8",
        )
        dom = self.run("--virtual-time-budget=5000", "--dump-dom", *flags, outer.as_uri()).stdout
        found = re.search(r"<pre>(.*?)</pre>", dom, re.DOTALL)
        assert found, dom[:500]
        measured: dict[str, Any] = json.loads(html.unescape(found[1]))
        return measured

    def screenshot(self, page: Path, *flags: str) -> bytes:
        file = self.folder / "shot.png"
        self.run("--window-size=1280,2400", f"--screenshot={file}", *flags, page.as_uri())
        return file.read_bytes()

    def printed(self, page: Path) -> str:
        """The text of the page on paper."""
        file = self.folder / "page.pdf"
        self.run("--no-pdf-header-footer", f"--print-to-pdf={file}", page.as_uri())
        return subprocess.run([tool("pdftotext"), str(file), "-"], capture_output=True, text=True, check=True).stdout
