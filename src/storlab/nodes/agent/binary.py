"""Where the agent's executable lies on the controller."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from storlab.errors import MissingTool

_PACKAGE = Path(__file__).resolve().parents[2]
_CHECKOUT = _PACKAGE.parents[1]


def agent_path() -> Path:
    """The agent for this machine: ``$STORLAB_AGENT``, the installed one, or the one that a checkout has built.

    Raises ``MissingTool`` that names what provides it.
    """
    chosen = os.environ.get("STORLAB_AGENT")
    if chosen:
        if os.access(chosen, os.X_OK):
            return Path(chosen)
        raise MissingTool(f"$STORLAB_AGENT names {chosen}, which can't be executed; unset it or build that agent")
    target = f"{platform.machine()}-unknown-linux-gnu"
    candidates = (
        _PACKAGE / "bin" / "storlab-agent",
        _CHECKOUT / "agent" / "target" / target / "release" / "storlab-agent",
    )
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise MissingTool(f"the agent is missing: {agent_remedy()}")


def agent_remedy() -> str:
    """How whoever runs this Storlab gets an agent that fits it: a clause."""
    if (_CHECKOUT / "agent" / "Cargo.toml").is_file():
        return f"run `make agent` in {_CHECKOUT} (it needs Rust)"
    return f"install Storlab again from its wheel for {platform.machine()}, which has one"
