"""The shape of the network of a cell's nodes, as parts: what works over a network stands on the shape of its node.

A card has one shape at a time. A cell that wants another for a node that is kept has the old one torn down first, and
with it what was set up over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from storlab.errors import Unsupported
from storlab.nodes.node import Node
from storlab.nodes.shaping.apply import Port, shape_interface, shape_tcp
from storlab.nodes.shaping.look import Ending, connections, prove_size, round_trip
from storlab.run.session import Session
from storlab.run.setup.parts import Part, Parts, key_of
from storlab.study.cells import Cell, node_names
from storlab.study.chains import Chain
from storlab.waiting import all_of


@dataclass
class Shapes:
    """Those of one cell. ``used``: the parts that the cell uses, by key."""

    session: Session
    parts: Parts
    cell: Cell
    used: dict[str, Part]
    _found: dict[str, Part] = field(default_factory=dict)  # by node

    async def of(self, group: str, name: str, node: Part, apart: list[int]) -> Part | None:
        """The shape of a node's network; ``None`` where the study asks for none, and the node has its own again."""
        assert node.node is not None
        slot = f"network of {node.node.instance}"
        if not self.cell.shaped(group):
            await self.parts.make_room(slot)
            return None
        keep, tcp = self.cell.nodes[group].lasts, self.cell.nodes[group].tcp
        wanted = [None if each is None else each.model_dump(mode="json") for each in (self.cell.network, tcp)]
        key = key_of("network", name, wanted, node.key, *apart)

        async def set_up(part: Part) -> None:
            part.node = node.node
            await self._shape(part, group)

        await self.parts.make_room(slot, key)
        about: dict[str, Any] = {"label": f"network of {name}", "facts_of": name, "slot": slot}
        part = self._found[name] = await self.parts.get(key, keep, (node,), set_up, self.used, **about)
        return part

    async def _shape(self, part: Part, group: str) -> None:
        node, host, network = part.node, self.session.host, self.session.network
        interface, tcp = self.cell.nodes[group].shaped, self.cell.nodes[group].tcp
        assert node is not None and interface is not None, "checked when the study was loaded"
        register = self.parts.registering(part, node)
        if self.cell.network is not None and self.cell.network.shapes:
            card = network.card_of(node.address or "")
            port = None if card is None else Port(host, network.name, card, self.parts.registering(part, host))
            got = await shape_interface(node, interface, port, self.cell.network, register)
            part.stack.facts.append({"layer": "network", **got, "peers": {}})
        if tcp is not None:
            part.stack.facts.append({"layer": "tcp", **await shape_tcp(node, interface, tcp, register)})

    async def open_way(self, chain: Chain, node: Node | None) -> None:
        """Let nodes of the run's network reach the machine that serves a chain; ``node``: the one that does so itself.

        Raises ``Unsupported``, and ``TrialError`` if nothing comes back.
        """
        if not self.cell.by_uplink(chain):
            return
        for served in (self.session.nodes[name] for name in node_names(chain.source, self.cell.nodes[chain.source])):
            if served.address is None:
                raise Unsupported(f"node {served.name} has no address at which others reach it")
            if node is None:
                await self.session.network.open_to(served.address)
            else:
                await self.session.network.route(node, served.address)

    async def prove(self, chain: Chain, name: str) -> None:
        """Before a chain crosses to a node: packets of full size pass between that and what serves it, both ways.

        Else connections are made, and hang at the first that is full. Raises ``TrialError`` that says where they end.
        """
        asked, mine = self.cell.network, self._found.get(name)
        network = asked if asked is not None and asked.shapes else None
        for peer in self._servers(chain):
            theirs = self._found.get(peer)
            if network is None or mine is None or theirs is None or mine.node is None or theirs.node is None:
                continue
            here = Ending(mine.node, self.cell.nodes[chain.group].shaped or "")
            there = Ending(theirs.node, self.cell.nodes[chain.source].shaped or "")
            ends = [(here, there), *([] if self.cell.by_uplink(chain) else [(there, here)])]  # no way in: it is NAT
            await all_of(*(prove_size(one, other, network) for one, other in ends))

    async def look(self) -> None:
        """Add to the facts what is known once all is set up: round trips to the nodes that serve, and connections."""
        for chain in self.cell.chains:
            for peer in self._servers(chain):
                for name in node_names(chain.group, self.cell.nodes[chain.group]):
                    await self._look_from(name, peer)

    def _servers(self, chain: Chain) -> list[str]:
        """The nodes that a chain comes from over the network."""
        if chain.crossing is None or chain.crossing.transport != "network" or chain.source not in self.cell.nodes:
            return []
        return node_names(chain.source, self.cell.nodes[chain.source])

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
