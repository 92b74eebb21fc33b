"""PDF, where a browser is installed; a clear sentence where none is."""

from __future__ import annotations

import pytest

from storlab.errors import UserError
from storlab.report.formats.pdf import render_pdf

from ..sample import sample


def test_without_a_browser_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match="apt-get install chromium"):
        render_pdf(sample())
