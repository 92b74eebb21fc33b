"""Where the agent's executable lies on the controller."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from storlab.errors import MissingTool


def agent_path() -> Path:
    """The agent for this machine: ``$STORLAB_AGENT``, beside the package, or in the checkout's build folder.

    Raises ``MissingTool`` that names the command which builds it.
    """
    chosen = os.environ.get("STORLAB_AGENT")
    if chosen:
        if os.access(chosen, os.X_OK):
            return Path(chosen)
        raise MissingTool(f"$STORLAB_AGENT names {chosen}, which can't be executed; unset it or build that agent")
    package = Path(__file__).resolve().parent.parent
    target = f"{platform.machine()}-unknown-linux-gnu"
    candidates = (
        package / "bin" / "storlab-agent",
        package.parent.parent / "agent" / "target" / target / "release" / "storlab-agent",
    )
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise MissingTool("the agent is not built; run `make agent` in Storlab's checkout (it needs Rust)")
