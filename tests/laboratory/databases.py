"""A laboratory in a folder that the servers' own users may pass through."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from layers.database import with_mysql


@contextlib.contextmanager
def laboratory_of_databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """With a cache of its own, so that data sets are made in it; whatever becomes of pytest's folder."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        monkeypatch.setenv("XDG_STATE_HOME", f"{name}/state")
        with_mysql(Path(name) / "cache", monkeypatch)
        with contextlib.closing(Laboratory(Path(name))) as made:
            yield made
