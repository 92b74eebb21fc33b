"""The shape of the network of a cell's nodes, as parts: what works over a network stands on the shape of its node.

A card has one shape at a time. A cell that wants another for a node that is kept has the old one torn down first, and
with it what was set up over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from storlab.errors import Unsupported
from storlab.nodes.node import Node
from storlab.nodes.shaping.apply import Port, shape_interface, shape_tcp
from storlab.nodes.shaping.look import Ending, connections, prove_size, round_trip
from storlab.run.session import Session
from storlab.run.setup.parts import Part, Parts
from storlab.study.cells import Cell, node_names
from storlab.study.chains import Chain
from storlab.study.layout import Unit
from storlab.waiting import all_of


class Shapes:
    """Those of one cell."""

    def __init__(self, session: Session, parts: Parts, cell: Cell) -> None:
        self._session, self._parts, self._cell = session, parts, cell
        self._found: dict[str, Part] = {}  # by node

    async def of(self, unit: Unit, key: str, below: Sequence[Part], used: dict[str, Part]) -> Part:
        node = below[0].node
        assert node is not None
        await self.make_room(node, key)
        part = await self._parts.get(unit, key, below, self._shape, used, _slot(node))
        self._found[unit.node] = part
        return part

    async def make_room(self, node: Node, key: str = "") -> None:
        """Tear down any other shape of a node's network."""
        await self._parts.make_room(_slot(node), key)

    async def _shape(self, part: Part) -> None:
        node = part.node = part.stands_on[0].node
        host, network = self._session.host, self._session.network
        interface, tcp = self._cell.nodes[part.unit.on].shaped, self._cell.nodes[part.unit.on].tcp
        assert node is not None and interface is not None, "checked when the study was loaded"
        register = self._parts.registering(part, node)
        if self._cell.network is not None and self._cell.network.shapes:
            card = network.card_of(node.address or "")
            port = None if card is None else Port(host, network.name, card, self._parts.registering(part, host))
            got = await shape_interface(node, interface, port, self._cell.network, register)
            part.stack.facts.append({"layer": "network", **got, "peers": {}})
        if tcp is not None:
            part.stack.facts.append({"layer": "tcp", **await shape_tcp(node, interface, tcp, register)})

    async def open_way(self, chain: Chain, node: Node | None) -> None:
        """Let nodes of the run's network reach the machine that serves a chain; ``node``: the one that does so itself.

        Raises ``Unsupported``, and ``TrialError`` if nothing comes back.
        """
        if not self._cell.by_uplink(chain):
            return
        for served in (self._session.nodes[name] for name in node_names(chain.source, self._cell.nodes[chain.source])):
            if served.address is None:
                raise Unsupported(f"node {served.name} has no address at which others reach it")
            if node is None:
                await self._session.network.open_to(served.address)
            else:
                await self._session.network.route(node, served.address)

    async def cross(self, chain: Chain, node: Part) -> None:
        """Before a chain crosses to a node: packets of full size pass between that and what serves it, both ways.

        Else connections are made, and hang at the first that is full. Raises ``TrialError`` that says where they end.
        """
        assert node.node is not None and chain.crossing is not None
        if chain.crossing.transport == "network":
            await self.open_way(chain, node.node)
        asked, mine = self._cell.network, self._found.get(node.node.name)
        network = asked if asked is not None and asked.shapes else None
        for peer in self._servers(chain):
            theirs = self._found.get(peer)
            if network is None or mine is None or theirs is None or mine.node is None or theirs.node is None:
                continue
            here = Ending(mine.node, self._cell.nodes[chain.group].shaped or "")
            there = Ending(theirs.node, self._cell.nodes[chain.source].shaped or "")
            ends = [(here, there), *([] if self._cell.by_uplink(chain) else [(there, here)])]  # no way in: it is NAT
            await all_of(*(prove_size(one, other, network) for one, other in ends))

    async def look(self) -> None:
        """Add to the facts what is known once all is set up: round trips to the nodes that serve, and connections."""
        for chain in self._cell.chains:
            for peer in self._servers(chain):
                for name in node_names(chain.group, self._cell.nodes[chain.group]):
                    await self._look_from(name, peer)

    def _servers(self, chain: Chain) -> list[str]:
        """The nodes that a chain comes from over the network."""
        if chain.crossing is None or chain.crossing.transport != "network" or chain.source not in self._cell.nodes:
            return []
        return node_names(chain.source, self._cell.nodes[chain.source])

    async def _look_from(self, name: str, peer: str) -> None:
        mine, theirs = self._found.get(name), self._found.get(peer)
        facts = next((each for each in mine.stack.facts if each["layer"] == "network"), None) if mine else None
        if facts is None or mine is None or mine.node is None or theirs is None or theirs.node is None:
            return
        address = theirs.node.address
        assert address is not None
        known = facts["peers"].setdefault(peer, {})
        if "round_trip" not in known:
            known["round_trip"] = await round_trip(mine.node, address)
        known |= {"mss": [], "path_mtu": [], **await connections(mine.node, address)}


def _slot(node: Node) -> str:
    return f"network of {node.instance}"
