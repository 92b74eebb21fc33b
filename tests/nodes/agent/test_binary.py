"""Where the agent is looked for, and what a user is told who has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from storlab.errors import MissingTool
from storlab.nodes.agent import binary
from storlab.nodes.agent.binary import agent_path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storlab as if it were in a folder of the test's own."""
    monkeypatch.delenv("STORLAB_AGENT", raising=False)
    monkeypatch.setattr(binary, "_PACKAGE", tmp_path / "src" / "storlab")
    monkeypatch.setattr(binary, "_CHECKOUT", tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return path


def test_an_installed_agent_comes_before_that_of_a_checkout(tmp_path: Path) -> None:
    built = program(tmp_path / "agent" / "target" / "x86_64-unknown-linux-gnu" / "release" / "storlab-agent")
    assert agent_path() == built
    installed = program(tmp_path / "src" / "storlab" / "bin" / "storlab-agent")
    assert agent_path() == installed


def test_one_that_the_user_names_comes_before_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "src" / "storlab" / "bin" / "storlab-agent")
    monkeypatch.setenv("STORLAB_AGENT", str(program(tmp_path / "own" / "agent")))
    assert agent_path() == tmp_path / "own" / "agent"


def test_without_one_a_checkout_is_told_to_build_it_and_an_installed_storlab_to_be_installed_again(
    tmp_path: Path,
) -> None:
    with pytest.raises(MissingTool, match=r"^the agent is missing: install Storlab again from its wheel for x86_64"):
        agent_path()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "Cargo.toml").touch()
    with pytest.raises(MissingTool, match=rf"^the agent is missing: run `make agent` in {tmp_path} "):
        agent_path()
