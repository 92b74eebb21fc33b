"""Programs: the agent's, where others are looked for, libraries that are extras, and users that nobody else is.

Debian keeps mkfs, losetup and their kind off an ordinary user's PATH. ``pyproject.toml`` lists what each extra
installs. Numbers of users are those that nothing gives away: see UIDS-GIDS.md of systemd.
"""

from __future__ import annotations

import hashlib
import os
import platform
import pwd
import secrets
from importlib.util import find_spec
from pathlib import Path

from storlab.base.errors import MissingTool

_PACKAGE = Path(__file__).resolve().parents[1]
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


ADMINISTRATION = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path(*more: str) -> str:
    """The user's PATH, then the folders of administration as far as they are not in it, then ``more``."""
    own = os.environ.get("PATH") or os.defpath
    return os.pathsep.join(dict.fromkeys([*own.split(os.pathsep), *ADMINISTRATION, *more]))


MODULES = {
    "charts": ("altair", "vl_convert"),
    "vm": ("qemu",),
}
"""Extra → modules that are all there where it is installed."""


def has_extra(extra: str) -> bool:
    """Whether it is installed. Imports nothing."""
    return all(find_spec(module) is not None for module in MODULES[extra])


def lacking(extra: str, feature: str) -> str:
    """What to install for ``feature``, which begins the sentence, in the plural: "charts"."""
    return f"{feature} need Storlab's extra `{extra}`: install it again as `storlab[{extra}]`, or as `storlab[all]`"


def need_extra(extra: str, feature: str) -> None:
    """Raises ``MissingTool`` unless it is installed."""
    if not has_extra(extra):
        raise MissingTool(lacking(extra, feature))


_FIRST, _COUNT = 0x70000000, 0x10000000  # which nothing gives away


def unused_user() -> int:
    """One, drawn from more than two hundred million."""
    while True:
        user = _FIRST + secrets.randbelow(_COUNT)
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user


def user_by(text: str) -> int:
    """One that is always the same for the same text."""
    return _FIRST + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _COUNT
