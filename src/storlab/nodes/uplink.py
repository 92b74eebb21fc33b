"""A way out of the run's own network: to single addresses, through this machine.

The run's namespace and this machine are joined by a link of Storlab's own, with addresses that RFC 2544 reserves for
benchmarks. What leaves by it is masqueraded twice: in the namespace, so that this machine needs no route to the run's
network, and here, so that other machines need none to the link. An nftables table of Storlab's own lets connections to
the given addresses through, and none from outside.

Of this machine's own settings one is changed, if it was off: whether packets that come in by the interface towards such
an address are forwarded. For as long, the same table keeps this machine from forwarding any others that come in there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address
from typing import Annotated

from msgspec import Meta

from storlab.errors import CommandFailed, StorlabError, TrialError, Unsupported
from storlab.nodes.answers import understood
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.undo import RunName, run_of, undo

NEEDS = Needs(programs=("ip", "nsenter", "nft", "ping"), root="a way out of the network among the nodes")
_Device = Annotated[str, Meta(pattern=r"^storlab-[0-9a-f]{4}$")]
InterfaceName = Annotated[str, Meta(pattern=r"^(?!(all|default|\.{1,2})$)[A-Za-z0-9_.:@+-]{1,15}$")]
"""Of a network interface, see dev_valid_name() in net/core/dev.c; ``all`` and ``default`` are no interface."""

_CONF = "/proc/sys/net/ipv4/conf"
_INSIDE = "outside0"  # the link's end in the namespace, where it leads outside
_FIRST = int(IPv4Address("198.18.0.0"))  # RFC 2544: 2^17 addresses for benchmarks, four to a link
_ANSWER = 5  # s

_HERE = """
table ip {table} {{
    set servers {{ type ipv4_addr; }}
    set guarded {{ type ifname; }}
    chain outgoing {{
        type nat hook postrouting priority srcnat;
        ip saddr {inner} oifname != "{link}" masquerade
    }}
    chain forwarded {{
        type filter hook forward priority filter;
        iifname "{link}" ip daddr @servers accept
        iifname "{link}" drop
        oifname "{link}" ct state established,related accept
        oifname "{link}" drop
        iifname @guarded drop
    }}
    chain incoming {{
        type filter hook input priority filter;
        iifname "{link}" ip daddr @servers accept
        iifname "{link}" drop
    }}
}}
"""
_THERE = f"""
table ip storlab {{
    chain outgoing {{
        type nat hook postrouting priority srcnat;
        oifname "{_INSIDE}" masquerade
    }}
    chain forwarded {{
        type filter hook forward priority filter;
        iifname "{_INSIDE}" ct state established,related accept
        iifname "{_INSIDE}" drop
    }}
}}
"""


@undo("uplink.remove")
async def remove_uplink(host: Node, network: RunName, device: _Device) -> str | None:
    if run_of(network) is None or not network.startswith("storlab-"):
        raise StorlabError(f"the nftables table {network} is not Storlab's own: left alone")
    if device != link_of(network):
        raise StorlabError(f"the network link {device} is not that of {network}: left alone")
    removed = []
    if (await host.run(["nft", "list", "table", "ip", network], check=False)).ok:
        await host.run(["nft", "delete", "table", "ip", network])
        removed.append(f"the nftables table {network}")
    if (await host.run(["test", "-e", f"/sys/class/net/{device}"], check=False)).ok:
        await host.run(["ip", "link", "delete", "dev", device])
        removed.append(f"the network link {device}")
    return f"removed {' and '.join(removed)}" if removed else None


@undo("uplink.forwarding")
async def restore_forwarding(host: Node, interface: InterfaceName) -> str | None:
    """Forward no packets any more that come in by an interface; unless somebody has made all interfaces forward."""
    path = f"{_CONF}/{interface}/forwarding"
    now, everywhere = await host.texts(path, f"{_CONF}/all/forwarding")
    if now != "1" or everywhere == "1":
        return None
    await host.write(path, b"0")
    return f"made {interface} forward no packets, as before"


UPLINK_UNDOES = (remove_uplink, restore_forwarding)


def link_of(network: str) -> str:
    """The name of the link of a run's network: at most 15 characters, see netdevice(7)."""
    run = run_of(network)
    return f"storlab-{run[-4:] if run else '0000'}"


class Uplink:
    """Of the run's network ``network``, made when the first address is opened. ``host``: this machine."""

    def __init__(self, network: str, host: Callable[[], Node], announce: Callable[..., None]) -> None:
        self._network, self._host, self._announce = network, host, announce
        self._made = False
        self._open: set[str] = set()
        self._lock = asyncio.Lock()

    @property
    def _link(self) -> str:
        return link_of(self._network)

    @property
    def _ends(self) -> tuple[str, str]:
        """The link's addresses: here, and in the namespace."""
        first = _FIRST + int(self._link[-4:], 16) % 2**15 * 4
        return str(IPv4Address(first + 1)), str(IPv4Address(first + 2))

    async def open_to(self, address: str) -> None:
        """Let what is in the network reach an address. Idempotent. Raises ``Unsupported`` if that can't be had here."""
        async with self._lock:
            if address in self._open:
                return
            if not isinstance(ip_address(address), IPv4Address):
                raise Unsupported(f"the network among the nodes has no way to {address}: it knows IPv4 alone")
            try:
                if not self._made:
                    await self._make()
                    self._made = True
                await self._forward(address)
            except CommandFailed as error:
                raise Unsupported(f"this machine gives the network among the nodes no way out: {error}") from None
            self._open.add(address)

    async def prove(self, node: Node, address: str) -> None:
        """Make sure that answers reach a node. Raises ``TrialError`` that says where they may be lost."""
        if not (await node.run(["ping", "-n", "-c", "1", "-w", str(_ANSWER), address], check=False)).ok:
            raise TrialError(
                f"node {node.name}: no answer from {address} within {_ANSWER} s through this machine: a firewall here "
                "may drop what is forwarded, or one there does not answer ping"
            )

    async def _make(self) -> None:
        host, link, (here, there) = self._host(), self._link, self._ends
        await self._refuse_others(host)
        self._announce(remove_uplink.name, network=self._network, device=link)
        await host.run(["nft", "-f", "-"], stdin=_HERE.format(table=self._network, link=link, inner=there).encode())
        peer = ["peer", "name", _INSIDE, "netns", self._network]
        await host.run(["ip", "link", "add", "name", link, "type", "veth", *peer])
        await host.run(["ip", "address", "add", f"{here}/30", "dev", link])
        await host.run(["ip", "link", "set", "dev", link, "up"])
        await host.write(f"{_CONF}/{link}/forwarding", b"1")
        inside = ["ip", "-netns", self._network]
        await host.run([*inside, "address", "add", f"{there}/30", "dev", _INSIDE])
        await host.run([*inside, "link", "set", "dev", _INSIDE, "up"])
        enter = ["nsenter", f"--net=/run/netns/{self._network}", "--"]
        await host.run([*enter, "nft", "-f", "-"], stdin=_THERE.encode())
        await host.run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    async def _refuse_others(self, host: Node) -> None:
        """Two ways out at once would each undo what the other needs."""
        tables = (await host.output("nft", "list", "tables", "ip")).split()
        if others := [name for name in tables if run_of(name) not in (None, run_of(self._network))]:
            run = run_of(others[0])
            raise Unsupported(
                f"the run {run} has a way out of its network through this machine already: wait for its end, or run "
                f"`storlab clean {run}` if it is over"
            )

    async def _forward(self, address: str) -> None:
        host, (here, _) = self._host(), self._ends
        await host.run(["nft", "add", "element", "ip", self._network, "servers", f"{{ {address} }}"])
        out = await interface_toward(host, address)
        if out != "lo":  # else it is this machine's own
            path = f"{_CONF}/{out}/forwarding"
            if await host.texts(path) != ["1"]:
                guarded = f'{{ "{out}" }}'
                await host.run(["nft", "add", "element", "ip", self._network, "guarded", guarded])
                self._announce(restore_forwarding.name, interface=out)
                await host.write(path, b"1")
        await host.run(["ip", "-netns", self._network, "route", "replace", address, "via", here, "dev", _INSIDE])


async def interface_toward(node: Node, address: str) -> str:
    """The network interface by which a node reaches an address. Raises ``CommandFailed`` if there is none."""
    with understood(node.name, f"looking for the way to {address}"):
        found = json.loads(await node.output("ip", "-j", "route", "get", address))
        return str(found[0]["dev"])


__all__ = ["NEEDS", "UPLINK_UNDOES", "InterfaceName", "Uplink", "interface_toward"]
