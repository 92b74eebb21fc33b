"""Databases for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.images.cache import cache_folder
from storlab.images.unpacked import MYSQL

UNPACKED = MYSQL.folder
"""As whoever runs the tests has it: each test has a cache of its own."""


def with_mysql(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache in ``home``, but for MySQL, where that is unpacked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    if UNPACKED is not None:
        (cache_folder() / "parts").mkdir(parents=True)
        (cache_folder() / "parts" / MYSQL.name).symlink_to(UNPACKED)
