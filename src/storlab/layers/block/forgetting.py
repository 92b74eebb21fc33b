"""Where a signature of Storlab's own is by now that it made on a device of the user's.

Kernels give other names at each boot: what was ``/dev/sdb`` may be ``/dev/sdc``, and another disk ``/dev/sdb``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from storlab.errors import StorlabError, UserError
from storlab.layers.block.identity import identify
from storlab.layers.resources import Disk
from storlab.nodes.node import Node
from storlab.nodes.privileges import on_device

Fingerprint = Annotated[str, Meta(pattern=r"^((marked|numbered)-[0-9a-f]{32})?$")]
"""That of the device when the signature was announced; empty in journals from before it was noted."""

TypesOf = Callable[[bytes], list[str]]
"""Which types of signatures in what ``wipefs --json`` prints are Storlab's own, and no one else's."""


def fingerprint_of(disk: Disk) -> str:
    return disk.device.fingerprint if disk.device is not None else ""


async def own_signatures(
    node: Node, device: str, was: str, token: str, types_of: TypesOf
) -> tuple[str, list[str]] | None:
    """The device that has the signature now, and its types there; ``None`` where it was not made, or is wiped.

    ``token`` is how blkid(8) finds it, by tag and value. Raises ``StorlabError`` where the device is not found that
    had, or was about to get, the signature.
    """
    here = types_of(await _listing(node, device))
    now = await _fingerprint(node, device)
    if now is not None and now == was:
        return (device, here) if here else None
    listed = {path: types_of(await _listing(node, path)) for path in await _tagged(node, token) if path != device}
    elsewhere = {path: types for path, types in listed.items() if types}
    same = [path for path in elsewhere if await _fingerprint(node, path) == was]
    if same:
        return same[0], elsewhere[same[0]]
    if here:
        return device, here
    if len(elsewhere) == 1 and not was.startswith("marked"):
        return next(iter(elsewhere.items()))
    if now is not None and not was and not elsewhere:
        return None  # that it is another device can't be told
    state = f"{device} is another device now" if now is not None else f"there is no {device} now"
    seen = f", and {', '.join(elsewhere)} may be a copy of it" if elsewhere else ""
    raise StorlabError(
        f"node {node.name}: {state}{seen}: Storlab's own signature ({token}) is still on the device that had that "
        "name, unless it is wiped. Attach that again, or wipe it by hand"
    )


async def _listing(node: Node, device: str) -> bytes:
    return (await on_device(node, device).run(["wipefs", "--no-act", "--json", device], check=False)).stdout


async def _fingerprint(node: Node, device: str) -> str | None:
    try:
        return (await identify(node, device)).fingerprint
    except UserError:
        return None


async def _tagged(node: Node, token: str) -> list[str]:
    """All devices that blkid(8) finds by it; its cache may name those of the boot before."""
    found = await node.run(
        ["blkid", "--cache-file", "/dev/null", "--match-token", token, "--output", "device"], check=False
    )
    return found.stdout.decode(errors="replace").split("\n")[:-1]
