"""Nodes whose network is that of their machine: which address others reach them at, and which interface may be changed.

A study changes nothing of a machine's own network but one interface, which it names, and gives that back as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from storlab.errors import UserError
from storlab.model import Model
from storlab.nodes.answers import understood
from storlab.nodes.kind import NetworkOf
from storlab.nodes.node import Node
from storlab.reach import KernelSetting, Listens

# The way back to whoever logged in: an interface that it takes must stay as it is, or the machine may be lost.
_CONTROL = r"""
[ -n "$SSH_CONNECTION" ] || exit 0
set -- $SSH_CONNECTION
ip -o route get "$1" from "$3"; ip -o address show to "$3"
"""


def _plain(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        raise ValueError(f"{value!r} is no IP address: write it in numbers, such as 192.0.2.7") from None


IPAddress = Annotated[Listens, Field(max_length=45), AfterValidator(_plain)]


class MachineNetwork(Model):
    """What a study says of a machine's own network."""

    interface: Annotated[KernelSetting, Field(pattern=r"^[A-Za-z0-9_.:@+-]{1,15}$")] | None = Field(
        None,
        description="The network interface that has `address` and that `[network]` and `tcp` may change, and give back "
        "as it was. It must not be the one that Storlab's own connection takes.",
    )

    network_of: ClassVar[NetworkOf] = "machine"

    @property
    def shaped(self) -> str | None:
        return self.interface


async def check_machine_network(node: Node, address: str | None, interface: str | None) -> None:
    """Raise ``UserError`` with its ``key`` unless the address and the interface are this machine's, and may be used."""
    with understood(node.name, "looking at its addresses"):
        found = json.loads(await node.output("ip", "-j", "address", "show"))
        has = {str(each["ifname"]): [*filter(None, map(_address, each["addr_info"]))] for each in found}
    every = [one for name, ones in has.items() if name != "lo" for one in ones]
    if address is not None and address not in {one for ones in has.values() for one in ones}:
        raise UserError(f"node {node.name} has no address {address}: it has {', '.join(every) or 'none'}", ("address",))
    if interface is None:
        return
    if interface not in has:
        others = ", ".join(name for name in has if name != "lo") or "none"
        raise UserError(f"node {node.name} has no network interface {interface}: it has {others}", ("interface",))
    if interface == "lo":
        raise UserError("lo is the loopback, which everything on a machine uses: name another", ("interface",))
    if address not in has[interface]:
        own = has[interface]
        if not own:
            raise UserError(
                f"node {node.name}: {interface} has no address: give it one, or name another", ("interface",)
            )
        at = (
            f"others reach it at {address}, which {interface} does not have"
            if address
            else "others must reach it there"
        )
        raise UserError(f'node {node.name}: {at}: write address = "{own[0]}", too', ("interface",))
    if interface in (await node.output("sh", "-c", _CONTROL)).split():
        raise UserError(
            f"{interface} carries the connection by which node {node.name} is controlled: shaping it could lose the "
            "machine; name another interface",
            ("interface",),
        )


def _address(found: Mapping[str, Any]) -> str:
    """Of what ip(8) says of an address; empty for one that is valid on its link alone."""
    return "" if found["scope"] == "link" else str(found["local"])
