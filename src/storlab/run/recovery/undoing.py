"""All ways of tearing something down, in one table: those of layers and node kinds, and the run's own.

Of what scripts of a suite have put on the files and loop devices that Storlab gave them, only this is undone: mounts of
them or below the run's own folder, device mappings over them, pools that have nothing else, and loop devices that
scripts made over files there. Whatever has another device as well is left alone, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain

from storlab.base.errors import StorlabError
from storlab.layers.block.loop import loop_devices
from storlab.layers.fs.mount import parse_mountinfo
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.settings import restore
from storlab.nodes.undo import LONG, RunPath, Undo, refuse_foreign, remove_folder, undo
from storlab.registry import layer_types, node_kinds

_VDEV = re.compile(r"^\t\s*(?P<path>/\S+)(\t|$)")


@undo("suite.leftovers", patience=300.0)
async def remove_leftovers(node: Node, path: RunPath) -> str | None:
    """Tear down what stands on a run's own files, before these are removed."""
    folder = path
    refuse_foreign(folder, itself=True)
    own = {device: file for device, file in await loop_devices(node) if file.startswith(f"{folder}/")}
    did = await _destroy_pools(node, folder, own)
    names = [name for device in own for name in await _standing_on(node, device.removeprefix("/dev/"))]
    did += await _unmount(node, folder, names)
    did += await _remove_mappings(node, names)
    for device in own:
        await node.run(["losetup", "--detach", device], check=False)  # else the loop device's own entry says why not
    return "; ".join(did) or None


async def _destroy_pools(node: Node, folder: str, own: Iterable[str]) -> list[str]:
    (loaded,) = await node.carry_out(steps.look("/proc/spl/kstat/zfs"), go_on=True)
    if not loaded.there:
        return []
    names = await node.run(["zpool", "list", "-H", "-o", "name"], check=False)
    did = []
    for pool in names.stdout.decode(errors="replace").split():
        listed = await node.run(["zpool", "list", "-v", "-H", "-P", "--", pool], check=False)
        vdevs = devices_of(listed.stdout.decode(errors="replace"))
        ours = [path for path in vdevs if _is_own(path, folder, own)]
        if ours and len(ours) == len(vdevs):
            await node.run(["zpool", "destroy", "-f", "--", pool])
            did.append(f"destroyed the pool {pool}")
        elif ours:
            raise StorlabError(f"the pool {pool} is on {ours[0]}, but not only on devices of the run: left alone")
    return did


def devices_of(listed: str) -> list[str]:
    """The devices and files that a pool is on, from ``zpool list -v -H -P POOL``."""
    return [found["path"] for line in listed.splitlines() if (found := _VDEV.match(line)) is not None]


def _is_own(path: str, folder: str, own: Iterable[str]) -> bool:
    return path.startswith(f"{folder}/") or any(path == each or path.startswith(f"{each}p") for each in own)


async def _standing_on(node: Node, name: str) -> list[str]:
    """A disk, its partitions and what device-mapper has over any of them, by name; each before what is over it."""
    (parts,) = await node.carry_out(steps.names(f"/sys/class/block/{name}"), go_on=True)
    found = [name, *(each for each in parts.entries if each.startswith(f"{name}p"))]
    holders = await node.carry_out(*(steps.names(f"/sys/class/block/{each}/holders") for each in found), go_on=True)
    for holder in {each for listed in holders for each in listed.entries if each.startswith("dm-")}:
        found += await _standing_on(node, holder)
    return found


async def _unmount(node: Node, folder: str, names: Iterable[str]) -> list[str]:
    numbers = await node.texts(*(f"/sys/class/block/{name}/dev" for name in names))
    devices = {number.strip() for number in numbers if number}
    did = []
    for mount in reversed(parse_mountinfo(await node.read_text("/proc/self/mountinfo"))):
        if mount.device in devices or mount.path.startswith(f"{folder}/"):
            await node.run(["umount", "--", mount.path])
            did.append(f"unmounted {mount.path}")
    return did


async def _remove_mappings(node: Node, names: Iterable[str]) -> list[str]:
    """The uppermost first."""
    did = []
    for name in dict.fromkeys(reversed([each for each in names if each.startswith("dm-")])):
        mapping = (await node.read_text(f"/sys/class/block/{name}/dm/name")).strip()
        await node.run(["dmsetup", "remove", "--", mapping])
        did.append(f"removed the mapping {mapping}")
    return did


@undo("scratch.remove", order=6, patience=LONG, outlives_boot=True)
async def remove_scratch(node: Node, path: RunPath) -> str | None:
    """Remove the run's own folder on a node."""
    return await remove_folder(node, path)


_OWN = (remove_scratch, remove_leftovers, restore)


@cache
def undo_table() -> dict[str, Undo]:
    """Each by the name that journals use; also those of somebody else's packages."""
    layers = (cls.undoes for cls in layer_types().values())
    kinds = (cls.undoes for cls in node_kinds().values())
    table: dict[str, Undo] = {}
    for each in chain(_OWN, *layers, *kinds):
        assert table.setdefault(each.name, each) is each, f"two ways to undo {each.name}"
    return table
