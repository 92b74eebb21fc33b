"""A report as PDF, for those who must send one: the HTML page as Chromium prints it, with all that is folded open."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from storlab.errors import UserError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--no-pdf-header-footer")
_SECONDS = 120


def print_page(html: str) -> bytes:
    """A whole page. Raises ``UserError`` if no browser is installed, or it prints nothing."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        remedy = "install one (`apt-get install chromium`), or print the HTML report from any browser"
        raise UserError(f"PDF needs Chromium, and none of {', '.join(_BROWSERS)} is installed: {remedy}")
    with tempfile.TemporaryDirectory(prefix="storlab-pdf-") as folder:
        page, printed = Path(folder, "report.html"), Path(folder, "report.pdf")
        page.write_text(html, "utf-8")
        # Chromium's sandbox refuses to start as root; the page's own policy lets it fetch and run nothing.
        flags = (*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else []), f"--user-data-dir={folder}/profile")
        command = [browser, *flags, f"--print-to-pdf={printed}", page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True)
            return printed.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"{browser} did not print the report: {error}") from None
