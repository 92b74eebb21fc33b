"""Where the agent's executable lies on the controller."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from storlab.errors import MissingTool

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


ARCHITECTURES = {"x86_64": 62, "aarch64": 183}
"""Those that the agent is built for, by their names in uname(2): their machines of elf(5)."""


def agent_path(architecture: str = "") -> Path:
    """The agent for a machine, by default this one: ``$STORLAB_AGENT``, the installed one, or a checkout's own.

    That of another architecture is ``bin/storlab-agent-ARCHITECTURE`` of the package, a checkout's own, or
    ``$STORLAB_AGENT_ARCHITECTURE``. Raises ``MissingTool`` that names what provides it.
    """
    if architecture not in ("", platform.machine()):
        return _foreign_agent(architecture)
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


def _foreign_agent(architecture: str) -> Path:
    if architecture not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise MissingTool(f"there is no agent for {architecture or 'an unknown architecture'}, only for {known}")
    variable = f"STORLAB_AGENT_{architecture}"
    chosen = os.environ.get(variable)
    candidates = (
        *([Path(chosen)] if chosen else []),
        _PACKAGE / "bin" / f"storlab-agent-{architecture}",
        _CHECKOUT / "agent" / "target" / f"{architecture}-unknown-linux-gnu" / "release" / "storlab-agent",
    )
    for candidate in candidates:
        if candidate.is_file():
            _refuse_other(candidate, architecture)
            return candidate
    raise MissingTool(
        f"it is {architecture}, and this Storlab has no agent for that: take the one from the wheel for "
        f"{architecture} (bin/storlab-agent in it) and name it in {variable}"
    )


def _refuse_other(program: Path, architecture: str) -> None:
    with program.open("rb") as file:
        header = file.read(20)
    machine = int.from_bytes(header[18:], "little") if header.startswith(b"\x7fELF") else None
    if machine != ARCHITECTURES[architecture]:
        found = next((name for name, number in ARCHITECTURES.items() if number == machine), "something else")
        raise MissingTool(f"{program} is a program for {found}, and not for {architecture}")


def agent_remedy() -> str:
    if (_CHECKOUT / "agent" / "Cargo.toml").is_file():
        return f"run `make agent` in {_CHECKOUT} (it needs Rust)"
    return f"install Storlab again from its wheel for {platform.machine()}, which has one"
