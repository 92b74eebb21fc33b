"""Whether fsync(2) in a share reaches whoever serves it: seen there, while the file is still open in the share.

Its bytes must be in the server's own file; and where the server's file system allocates late, its extents must have
their place on the disk, which takes an fsync(2) of the server as well.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from storlab.nodes.process import telling
from storlab.workloads.base import RunContext, Served
from storlab.workloads.posix import SERVER
from storlab.workloads.posix.checks.processes import LENGTH

FOLDER = "fsync"  # below the directory of the checks

_LOOK = (Path(__file__).parent / "checks" / "seen.py").read_text("utf-8")
_Verdict = tuple[Literal["pass", "fail", "unsupported"], str]


class Seen(BaseModel):
    """What the server has of it. ``placed``: whether all extents have a place on the disk; ``None``: not known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: Annotated[int, Field(ge=0)]
    same: bool
    placed: bool | None


def judge(synced: Seen) -> _Verdict:
    if not synced.same:
        has = f"{synced.size} of {LENGTH} B" if synced.size != LENGTH else "other contents"
        return "fail", f"after fsync the server's file has {has}"
    if synced.placed is False:
        return "fail", "the server has the data, and has not synced them to its disk"
    if synced.placed is None:
        return "pass", "the server has the data; its file system does not say whether they are on the disk"
    return "pass", ""


async def look(place: RunContext, program: str, root: str, limit: float) -> bytes:
    """The line of this check, as the others have one."""
    outcome, reason = await _looked(place, program, f"{root}/{FOLDER}", limit)
    return orjson.dumps({"check": SERVER, "outcome": outcome, "reason": reason[:200]}) + b"\n"


async def _looked(place: RunContext, program: str, folder: str, limit: float) -> _Verdict:
    if place.served is None:
        return "unsupported", "it is not known which directory of which node this one is"
    argv = ("python3", "-I", program, folder, "--hold")
    holding = await place.node.start(argv, cwd=place.folder, timeout=limit)
    try:
        if await holding.first_line() != b"ready":
            ended = await holding.wait()
            lines = ended.stderr.decode(errors="replace").split("\n")
            return "fail", _printable(telling([line for line in lines if line.strip()] or ["no answer in time"]))
        return await _seen(place.served, f"{place.served.path}/{Path(folder).parent.name}/{FOLDER}")
    finally:
        await holding.end()
        with contextlib.suppress(OSError):
            await place.node.run(["rm", "-rf", "--", folder], check=False, timeout=limit)


async def _seen(served: Served, folder: str) -> _Verdict:
    ended = await served.node.run(["python3", "-I", "-c", _LOOK, folder], check=False, timeout=30.0)
    try:
        found = Seen.model_validate_json(ended.stdout)
    except ValidationError:
        return "unsupported", _printable(f"node {served.node.name} can't look: {ended.describe()}")
    return judge(found)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
