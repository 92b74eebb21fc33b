"""What there is for probes to watch on the nodes of a trial: what is expected of a cell, and what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storlab.base.errors import StorlabError
from storlab.base.waiting import all_of
from storlab.layers.base import Crossing
from storlab.layers.fs.mount import mounts_on
from storlab.layers.resources import Dir, Disk, Export, Pool, Server, Share
from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.probes.base import Probe
from storlab.probes.subject import End, Interface, Kind, ProcessGroup, Service, ShareMount, Subject
from storlab.run.build import Built
from storlab.run.parts import Part
from storlab.run.session import Session
from storlab.study.cells import HOST, Cell, node_names
from storlab.study.chains import down


def watched_groups(probe: Probe, cell: Cell) -> list[str]:
    """The node groups that a probe will watch, before any of them is there; this machine is ``host``."""
    return [name for name, (end, kinds) in _expected(cell).items() if probe.watches_at(end, kinds)]


def _expected(cell: Cell) -> dict[str, tuple[End, set[Kind]]]:
    above = _above(cell)
    guests = any(group.memory_needed() for group in cell.nodes.values())
    kinds: dict[str, set[Kind]] = {name: {"machine"} for name in cell.nodes}
    if guests or HOST in above or any(group.here for group in cell.nodes.values()):
        kinds.setdefault(HOST, {"machine"})
    for name in above:
        kinds[name].add("disks")
    for name in filter(cell.networked, cell.nodes):
        kinds[name].add("interfaces")
    if guests:
        kinds[HOST].add("processes")
    for unit in cell.units:
        mine = kinds.setdefault(unit.on, set()) if unit.links else set()
        for layer in unit.layers:
            if issubclass(layer.gives, Disk | Dir):
                mine.add("disks")
            if issubclass(layer.gives, Pool):
                mine.add("pools")
            if isinstance(layer, Crossing) and layer.requests and cell.nodes[unit.on].volatile:
                mine.add("shares")
            if issubclass(layer.gives, Server | Export | Share):
                mine |= {"server"} if isinstance(layer, Crossing) else {"server", "processes"}
    below = {name for name in kinds if name in above or (name == HOST and guests)}
    return {name: ("below" if name in below else "load", each) for name, each in kinds.items()}


async def subjects_of(built: Built, session: Session) -> dict[str, Subject]:
    """What there is to watch, by node; this machine is among them where any of the others is on it, or stands on it."""
    cell = built.cell
    above = {(built.group(s)[0].name if s in cell.nodes else HOST): names for s, names in _above(cell).items()}
    running = {name: node.process for name, node in built.nodes.items() if node.process is not None}
    guests = {name: ProcessGroup(role="guest", pid=pid) for name, pid in running.items()}
    nodes = {HOST: session.host, **built.nodes}
    if not guests and HOST not in above and all(node.machine != session.host.machine for node in built.nodes.values()):
        del nodes[HOST]
    addresses = {name: node.address for name, node in nodes.items() if node.address is not None}

    async def disks_below(node: Node) -> tuple[str, ...] | None:
        """The lowest disks that layers on a node stand on, or else the one that its scratch folder is on."""
        found = [disk for part in _parts_on(built, node) for disk in _lowest(part)]
        return tuple(dict.fromkeys(found)) or await disks_beneath(node, await session.scratch_on(node))

    async def subject(name: str, node: Node) -> Subject:
        mine = above.get(name, [])
        below = [other for other, names in above.items() if name in names]
        return Subject(
            group=HOST if name not in built.nodes else built.group_of(name),
            end="below" if mine or (name == HOST and guests) else "load",
            above=tuple(mine),
            disks=await disks_below(node) if mine else _disks_of_loads(built, node),
            interfaces=await _interfaces(node, [addresses[each] for each in (*mine, *below) if each in addresses]),
            processes={**(guests if name == HOST else {}), **_programs(built, node)},
            servers=_servers(built, node),
            shares=await _shares(built, node),
            pools=_pools(built, node),
        )

    found = await all_of(*(subject(name, node) for name, node in nodes.items()))
    return dict(zip(nodes, found, strict=True))


def _above(cell: Cell) -> dict[str, list[str]]:
    """Group → the nodes whose chains stand on it, directly or through others."""
    found: dict[str, list[str]] = {}
    for chain in cell.chains:
        for each in down(chain, cell.all_chains):
            if each.crossing is not None:
                names = found.setdefault(each.source, [])
                names += [name for name in node_names(chain.group, cell.nodes[chain.group]) if name not in names]
    return found


def _parts_on(built: Built, node: Node) -> list[Part]:
    """In an order that is the same in every trial."""
    return sorted(
        (part for part in built.parts.values() if part.node is node), key=lambda p: (len(p.unit.label), p.unit.label)
    )


def _programs(built: Built, node: Node) -> dict[str, ProcessGroup]:
    return {
        program.name: ProcessGroup(role="server", pid=program.pid, cgroup=program.cgroup)
        for part in _parts_on(built, node)
        for program in part.programs
    }


def _pools(built: Built, node: Node) -> tuple[str, ...]:
    resources = [each for part in _parts_on(built, node) for each in part.stack.resources]
    return tuple(dict.fromkeys(each.name for each in resources if isinstance(each, Pool)))


async def _shares(built: Built, node: Node) -> tuple[ShareMount, ...]:
    crossings = [each for part in _parts_on(built, node) for each in part.crossings]
    found = [(c.requests, top.path) for c, top, _ in crossings if c.requests is not None and isinstance(top, Dir)]
    if not found or not node.identity.volatile:
        return ()
    devices = {mount.path: mount.device for mount in await mounts_on(node)}
    return tuple(ShareMount(protocol=p, path=path, device=devices[path]) for p, path in found if path in devices)


def _servers(built: Built, node: Node) -> tuple[Service, ...]:
    """The servers that run on a node, and those of other nodes that it uses, or that its guests' QEMUs do."""
    run = [resource for part in _parts_on(built, node) for resource in part.stack.resources]
    used = []
    for (name, chain), stack in built.underlying.items():
        by_hypervisor = built.nodes[name].process is not None and not _over_network(built, name, chain)
        if (HOST if by_hypervisor else name) == node.name and stack.resource is not None:
            used.append(stack.resource)

    def service(each: Server | Export | Share) -> Service:
        dialect = each.dialect if isinstance(each, Server) else each.protocol
        return Service(dialect=dialect, address=_address(each.words()), here=each.node == node.name)

    return tuple(dict.fromkeys(service(each) for each in (*run, *used) if isinstance(each, Server | Export | Share)))


def _over_network(built: Built, node: str, chain: str) -> bool:
    found = built.cell.chain(built.group_of(node), chain)
    return found is not None and found.crossing is not None and found.crossing.transport == "network"


def _address(words: Mapping[str, str]) -> str:
    return f"{words['host']}:{words['port']}" if "host" in words else words.get("socket", words["target"])


def _disks_of_loads(built: Built, node: Node) -> tuple[str, ...] | None:
    """The disks under test: those that the chains of a node's loads end as, or the nearest below; ``None`` without
    storage. Of a node without loads, all its chains are.
    """
    targets = [target for load in built.cell.loads for target in load.on]
    used = {target.chain for target in targets if node.name in node_names(target.group, built.cell.nodes[target.group])}
    tops = [each for (name, chain), each in built.stacks.items() if name == node.name and (not used or chain in used)]
    found: list[str] = []
    for stack in tops:
        resource = stack.resource
        if isinstance(resource, Disk):
            found += resource.all_names
        elif isinstance(resource, Dir | Server) and resource.disks and resource.node == node.name:
            found += resource.disks
        elif resource is not None:
            found += [disk for part in built.parts.values() if part.stack is stack for disk in _nearest(part)]
    storage = any(isinstance(each, Disk | Dir) for part in _parts_on(built, node) for each in part.stack.resources)
    return tuple(dict.fromkeys(found)) if storage else None


def _nearest(part: Part) -> list[str]:
    """The disks that a part gives on its own node, the topmost, or else those that it stands on there."""
    disks = [each.name for each in part.stack.resources if isinstance(each, Disk)]
    below = [disk for each in part.stands_on if each.node is part.node for disk in _nearest(each)]
    return disks[-1:] or below


def _lowest(part: Part) -> list[str]:
    below = [disk for each in part.stands_on if each.node is part.node for disk in _lowest(each)]
    return below or [each.name for each in part.stack.resources if isinstance(each, Disk)][:1]


async def disks_beneath(node: Node, path: str) -> tuple[str, ...] | None:
    """The disk that a folder's file system is on; ``None`` where it has none, or several."""
    try:
        (looked,) = await node.carry_out(steps.look(path))
        (found,) = await node.carry_out(steps.readlink(steps.disk_link(looked.result.device or 0)), go_on=True)
    except (StorlabError, FileNotFoundError):
        return None
    name = found.text.rpartition("/")[2]
    return (name,) if name else None


async def _interfaces(node: Node, peers: Sequence[str]) -> tuple[Interface, ...]:
    if node.address is None:
        return ()
    listed = (await node.output("ip", "-oneline", "address", "show", "to", node.address)).split()
    return (Interface(name=listed[1], address=node.address, peers=tuple(peers)),) if len(listed) > 1 else ()
