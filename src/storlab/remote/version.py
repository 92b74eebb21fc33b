"""Which Storlab this is: its version, and a checksum of all of its files, since versions stay the same in development.

Both sides of a job must be the same: their records and events are those of one program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from storlab.agent_binary import agent_path
from storlab.version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
AGENT = "bin/storlab-agent"
"""Below the package, as in a wheel."""
_DIGITS = 12


@cache
def identity() -> str:
    """``0.1.0-3f2a…``: what the folder is called in which it lies on other machines. Raises ``MissingTool``."""
    seen = hashlib.sha256()
    for name, path in own_files():
        data = path.read_bytes()
        seen.update(f"{name} {len(data)}\n".encode())
        seen.update(data)
    return f"{__version__}-{seen.hexdigest()[:_DIGITS]}"


def own_files() -> Iterator[tuple[str, Path]]:
    """Names below the package, and where they lie: in a checkout, the agent is elsewhere."""
    for path in sorted(PACKAGE.rglob("*")):
        name = str(path.relative_to(PACKAGE))
        if path.is_file() and "__pycache__" not in path.parts and name != AGENT:
            yield name, path
    yield AGENT, agent_path()
