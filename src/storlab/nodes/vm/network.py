"""The network among a run's nodes: a namespace of its own with a bridge, and a tap for each guest that is in it.

Nothing leads from there to the outside, and nobody else on this machine can reach what is served in it. The QEMUs
whose disks come over this network run in the namespace too. Needs root.
"""

from __future__ import annotations

import re

from storlab.errors import StorlabError
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.vm.devices import Nic

NEEDS = Needs(programs=("ip",), paths=("/dev/net/tun",), root="a network among the nodes")
_BRIDGE = "nodes"
_SUBNET = "10.213.77"
_NAME = re.compile(r"storlab-\d{8}-\d{6}-[0-9a-f]{4}")


def network_name(run: str) -> str:
    """The namespace's name."""
    return f"storlab-{run}"


async def put_up_network(host: Node, name: str) -> None:
    """Make the namespace and its bridge; this machine's side is the subnet's first address."""
    for argv in (
        ["ip", "netns", "add", name],
        ["ip", "-netns", name, "link", "set", "dev", "lo", "up"],
        ["ip", "-netns", name, "link", "add", "name", _BRIDGE, "type", "bridge"],
        ["ip", "-netns", name, "address", "add", f"{_SUBNET}.1/24", "dev", _BRIDGE],
        ["ip", "-netns", name, "link", "set", "dev", _BRIDGE, "up"],
    ):
        await host.run(argv)


async def add_tap(host: Node, name: str, number: int) -> Nic:
    """A tap on the bridge for one guest; ``number`` counts from 1."""
    tap = f"tap{number}"
    for argv in (
        ["ip", "-netns", name, "tuntap", "add", "dev", tap, "mode", "tap"],
        ["ip", "-netns", name, "link", "set", "dev", tap, "master", _BRIDGE, "up"],
    ):
        await host.run(argv)
    return Nic(tap, f"52:54:00:5b:00:{number:02x}", f"{_SUBNET}.{number + 1}")


async def remove_network(host: Node, name: str) -> str | None:
    """Remove the namespace with all that is in it. Idempotent; refuses a name that is not Storlab's."""
    if not _NAME.fullmatch(name):
        raise StorlabError(f"the network namespace {name} is not Storlab's own: left alone")
    if not (await host.run(["test", "-e", f"/run/netns/{name}"], check=False)).ok:
        return None
    await host.run(["ip", "netns", "delete", name])
    return f"removed the network namespace {name}"
