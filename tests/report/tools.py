"""Programs that tests need: where they are, or a skip that names what to install."""

from __future__ import annotations

import os
import shutil

import pytest

_PACKAGES = {"asciidoctor": "asciidoctor", "chromium": "chromium", "pdftotext": "poppler-utils"}


def tool(name: str) -> str:
    """The program's path. Where it is missing, the test is skipped here, and fails where CI should have it."""
    path = shutil.which(name)
    if path is None:
        remedy = f"{name} is not installed: apt-get install {_PACKAGES[name]}"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return path
