"""Every test here has a laboratory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from laboratory import Laboratory


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """Storlab in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Laboratory(tmp_path)
