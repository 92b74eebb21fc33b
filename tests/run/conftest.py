"""Every test of a run here, however it ends, leaves nothing of it on the machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laboratory import Laboratory


@pytest.fixture
def lab(lab: Laboratory) -> Iterator[Laboratory]:
    """Storlab in an empty folder, of whose runs nothing may be left."""
    yield lab
    assert lab.leftovers() == []
