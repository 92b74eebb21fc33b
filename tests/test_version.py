"""The version stands in several places, and is the same in all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from storlab.version import __version__

ROOT = Path(__file__).parent.parent


def test_the_package_the_agent_and_the_changes_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    agent = tomllib.loads((ROOT / "agent" / "Cargo.toml").read_text())["package"]["version"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert package == agent == newest[1] == __version__
