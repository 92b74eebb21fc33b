"""Commands see nothing of what this user has run or measured before."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the user's own state."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
