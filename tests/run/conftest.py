"""Every test here has a laboratory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from laboratory import Laboratory


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    """Storlab in an empty folder."""
    return Laboratory(tmp_path)
