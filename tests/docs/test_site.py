"""The documentation as a site: it builds without a warning, fetches nothing, and has every page in its map."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .pages import ROOT

_FETCHED = re.compile(r'<(?:script|link|img|source|iframe)\b[^>]*?\b(?:src|href|srcset)="(https?:[^"]*)"')
_CODE = re.compile(r"(?s)<(pre|code).*?</\1>")


def test_the_site_builds_strictly_fetches_nothing_and_has_every_page_in_its_navigation(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("mkdocs")),
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {path.relative_to(tmp_path): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert {url for page in pages.values() for url in _FETCHED.findall(page)} == set()
    start = pages[Path("index.html")]
    for source in (ROOT / "docs").rglob("*.md"):
        place = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert place in pages
        assert place.parts[0] == "gallery" or f'href="{place}"' in start or place.name == "index.html", place
    assert "```" not in _CODE.sub("", pages[Path("tutorial.html")])
