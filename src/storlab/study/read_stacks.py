"""Reading a cell's stacks: of each node group, and the further chains of its nodes, checked from bottom to top."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from storlab.base.units import shown, size_text
from storlab.layers.base import Crossing, Layer
from storlab.layers.block.device import OF_LAB, DeviceLayer, HostDisk
from storlab.layers.block.loop import LoopLayer
from storlab.layers.fs.files import DirectoryLayer, FileLayer
from storlab.layers.net.connect import ABSENT
from storlab.layers.resources import RESOURCE_WORDS, Dir, Resource
from storlab.layers.stack import type_errors
from storlab.registry import layer_types
from storlab.study.cells import Load
from storlab.study.chains import MAIN, Chain, ChainError, Chains, Declared, down, ends_as, resolve, started
from storlab.study.machines import hosts_of, read_machines
from storlab.study.messages import unknown
from storlab.study.schema import HOST, NodeGroup
from storlab.study.substitution import Substitution
from storlab.study.toml_text import Path
from storlab.workloads.base import ReadInput

Accepted = Mapping[tuple[str, str], Sequence[tuple[type[Resource], ...]]]
"""The resources that each workload on a chain can use."""


class Reader(Protocol):
    """What reading stacks needs of the reader of the cell; both of its methods report what is wrong."""

    substitution: Substitution

    def problem(self, path: Path, message: str) -> None: ...
    def model(self, cls: type[BaseModel], tree: Any, path: Path) -> Any: ...


@dataclass
class StackReader:
    """Reads all stacks of one cell."""

    cell: Reader
    raw: Mapping[str, Any]
    groups: Mapping[str, NodeGroup]
    words: Mapping[Path, Collection[str]]  # in braces, of the trial's own commands
    read_input: ReadInput
    _declared: list[Declared] = field(default_factory=list)
    _bad: bool = False

    def read(self, accepted: Accepted, loads: Sequence[Load]) -> tuple[Declared, ...]:
        working = {name for load in loads for name in load.groups} or set(self.groups)  # none: reported already
        # Where all nodes with a load have a stack of their own, the study's is that of those that serve them.
        own = {name for name, group in self.groups.items() if group.stack is not None}
        unclaimed = self.raw.get("stack") is not None and working <= own
        serving = {group.source for group in self.groups.values()} if unclaimed else set()
        for name, group in self.groups.items():
            self._check_sources(name, group)
            if self._has_stack(group, name in working | serving):
                path: Path = ("stack",) if group.stack is None else ("nodes", name, "stack")
                self._declare(name, MAIN, group.source, path, 1, may_be_empty=group.source != HOST)
            for extra, further in group.extra.items():
                path = ("nodes", name, "extra", extra, "stack")
                self._declare(name, extra, further.source, path, further.count)
        if self._bad:
            return ()
        try:
            chains = resolve(self.groups, self._declared)
        except ChainError as error:
            self.cell.problem(error.origin, str(error))
            return ()
        self._check_targets(chains, loads)
        used = started(self.groups, chains, working)
        for key, chain in chains.items():
            if chain.group in used:
                self._check_types(chain, chains, accepted.get(key, ()))
                self._check_others(chain, chains)
        self._check_words(chains, loads)
        self._check_loads(chains, loads)
        self._check_room(chains, loads)
        return tuple(self._declared)

    def _has_stack(self, group: NodeGroup, works: bool) -> bool:
        """Whether a group's nodes have a stack: one of their own, or the study's where they have a load."""
        if group.stack is not None or not works:
            return group.stack is not None
        missing = group.here and not group.extra  # that is reported as the study's
        return missing or self.raw.get("stack") is not None or group.source != HOST

    def _check_sources(self, name: str, group: NodeGroup) -> None:
        places: dict[Path, str] = {("nodes", name, "from"): group.source}
        places |= {("nodes", name, "extra", key, "from"): extra.source for key, extra in group.extra.items()}
        for path, source in places.items():
            if source != HOST and source not in self.groups:
                self._problem(path, unknown(f"nodes {shown(source)}", source, [HOST, *self.groups]))
            elif source != HOST and (count := self.groups[source].count) != 1:
                serves = f"{source} is a group of {count} nodes, and one node serves the others"
                self._problem(path, f"{serves}: write count = 1 in [nodes.{source}]")

    def _problem(self, path: Path, message: str) -> None:
        self._bad = True
        self.cell.problem(path, message)

    def _declare(
        self, group: str, name: str, source: str, path: Path, count: int, *, may_be_empty: bool = False
    ) -> None:
        layers = self.layers(path, may_be_empty=may_be_empty)
        if layers is None:
            self._bad = True
            return
        at = self.cell.substitution.origin_of
        origins = tuple(at((*path, index)) for index in range(len(layers)))
        disk = self._disk(self.groups[group], source, layers)
        if disk is not None:
            left = 2 if isinstance(layers[0], FileLayer) and len(layers) > 1 and isinstance(layers[1], LoopLayer) else 1
            layers, origins = (disk, *layers[left:]), (("disk",), *origins[left:])
        layers = tuple(self._of_lab(layer, group, at) for layer, at in zip(layers, origins, strict=True))
        self._declared.append(Declared(group, name, source, layers, origins, path, count))

    def _disk(self, group: NodeGroup, source: str, layers: Sequence[Layer]) -> DeviceLayer | None:
        """The study's disk, if it takes the place of what these layers begin with on this machine."""
        path = self.raw.get("disk")
        here = group.here or any(isinstance(each, Crossing) and each.transport == "hypervisor" for each in layers)
        there = bool(hosts_of(group)) if path == OF_LAB else here
        if path is None or source != HOST or not there or not layers:
            return None
        lowest, named = layers[0], {"path": path, "wipe": self.raw.get("wipe")}
        if isinstance(lowest, DeviceLayer):
            return lowest.model_copy(update=named)
        copied = isinstance(lowest, FileLayer) and lowest.copy_of is not None  # its contents are what matters
        alone = isinstance(lowest, DirectoryLayer) and len(layers) == 1
        if alone or (isinstance(lowest, FileLayer) and not copied):
            return DeviceLayer(**named, keep=lowest.keep, once=lowest.once)
        return None

    def _of_lab(self, layer: Layer, group: str, origin: Path) -> Layer:
        """A device that the lab names, with the one that it names for each host of the group."""
        if not isinstance(layer, DeviceLayer) or layer.path != OF_LAB:
            return layer
        hosts = hosts_of(self.groups[group])
        if not hosts:
            self._problem(origin, f'the nodes {group} are no hosts of the lab: write kind = "ssh" and hosts = "@GROUP"')
            return layer
        try:
            machines = read_machines(self.read_input)
            disks = {host: machines.disk_of(host) for host in hosts}
        except ValueError as error:
            self._problem(origin, str(error))
            return layer
        return layer.model_copy(
            update={"disks": {host: HostDisk(path=disk, wipe=wipe) for host, (disk, wipe) in disks.items()}}
        )

    def _check_targets(self, chains: Chains, loads: Sequence[Load]) -> None:
        """Whether there is something for each load to run on."""
        for load in loads:
            for target in load.on:
                chain = chains.get((target.group, target.chain))
                group = self.groups.get(target.group)
                known = group is not None and target.chain in (MAIN, *group.extra)
                if group is not None and known and (chain is None or not chain.links):
                    further = [f'on = "{target.group}:{name}"' for name in group.extra]
                    remedy = f"write {' or '.join(further)}, or a stack" if further else "write a stack"
                    self.cell.problem(
                        ("workload", load.name),
                        f"there is nothing on the nodes {target.group} for this load to run on: {remedy}",
                    )

    def _check_types(self, chain: Chain, chains: Chains, accepted: Sequence[tuple[type[Resource], ...]]) -> None:
        """Whether a chain fits together, from the lowest layer on another node to the top."""
        links = [link for each in reversed([*down(chain, chains)]) for link in each.links]
        if not links:  # nothing runs here, or what is missing is reported already
            return
        wanted = set(accepted[0]).intersection(*accepted[1:]) if accepted else {Resource}
        kinds = sorted(wanted, key=lambda kind: kind.kind)
        for position, message in type_errors([link.layer for link in links], kinds)[:1]:
            self.cell.problem(links[position].origin, message)
            return
        for at, link in enumerate(chain.links):
            if wrong := link.layer.check_chain([each.layer for each in chain.links[:at]], chain.name == MAIN):
                self.cell.problem(link.origin, f"layer {link.layer.layer}: {wrong}")

    def _check_others(self, chain: Chain, chains: Chains) -> None:
        """Whether the further chains that a layer names are there, and give what it can take."""
        for index, link in enumerate(chain.links):
            at = chain.stands_on(link)
            for name in link.layer.chains():
                other = chains.get((at, name)) if name != MAIN else None
                if other is None and at != chain.group and (chain.group, name) in chains:
                    served = at if at != HOST else "the machine below the crossing"
                    self.cell.problem(
                        link.origin,
                        f"layer {link.layer.layer} is set up on {served}, and the chain {name} ends on the nodes "
                        f"{chain.group}: a layer takes chains of its own node",
                    )
                elif other is None or other is chain:
                    own = chain.name if at == chain.group else MAIN
                    named = [each for owner, each in chains if owner == at and each not in (MAIN, own)]
                    missing = unknown(f"chain {shown(name)}", name, named)
                    self.cell.problem(link.origin, f"layer {link.layer.layer}: {missing}")
                elif not issubclass(given := ends_as(other, chains) or Resource, link.layer.further):
                    takes = " or ".join(f"{kind.kind.lower()}s" for kind in link.layer.further)
                    self.cell.problem(
                        link.origin,
                        f"layer {link.layer.layer} takes {takes}, but the chain {name} ends as a {given.kind}",
                    )
                elif link.layer.overwrites and other.links[-1].layer.layer == "mkfs":
                    self.cell.problem(
                        link.origin,
                        f"layer {link.layer.layer} would overwrite the file system that mkfs makes at the end of the "
                        f"chain {name}: leave mkfs out there",
                    )
            others = [chains.get((at, name)) for name in link.layer.chains()]
            if all(others) and (wrong := link.layer.check_further(sum(each.count for each in others if each))):
                self.cell.problem(link.origin, f"layer {link.layer.layer} {wrong}")
            elif all(others):
                rooms = {each.name: [_room(_layers(each, chains))] * each.count for each in others if each}
                under = [*_layers(chain, chains)[: index - len(chain.links)]]
                if wrong := link.layer.check_sizes([_room(under)] if under else [], rooms):
                    self.cell.problem(link.origin, f"layer {link.layer.layer}: {wrong}")

    def _check_words(self, chains: Chains, loads: Sequence[Load]) -> None:
        """Whether what the loads run on has all that the trial's own commands name of it."""
        for target in {(target.group, target.chain): target for load in loads for target in load.on}.values():
            chain = chains.get((target.group, target.chain))
            kind = ends_as(chain, chains) or Resource if chain is not None and chain.links else Resource
            for path, words in self.words.items() if kind.has_words else ():
                for word in sorted((set(words) & set(RESOURCE_WORDS)) - kind.has_words):
                    has = ", ".join(f"{{{each}}}" for each in RESOURCE_WORDS if each in kind.has_words)
                    self.cell.problem(path, f"the stack ends as a {kind.kind}, which has no {{{word}}}, but {has}")

    def _check_loads(self, chains: Chains, loads: Sequence[Load]) -> None:
        """Whether each load can do what it shall on its stack, as far as that follows from what is written."""
        for load in loads:
            for chain in (chains.get((target.group, target.chain)) for target in load.on):
                if chain is None or not chain.links:
                    continue
                if (message := load.workload.check_on(_layers(chain, chains))) is not None:
                    self.cell.problem(("workload", load.name), message)
                    break

    def _check_room(self, chains: Chains, loads: Sequence[Load]) -> None:
        """Refuse a load that can't fit on its stack, where the study itself says how large both are."""
        for (group, name), chain in chains.items():
            left = _room(_layers(chain, chains))
            if left is None or not issubclass(ends_as(chain, chains) or Resource, Dir):
                continue
            for load in loads:
                on = any(target.group == group and target.chain == name for target in load.on)
                needed = load.workload.space() if on else 0
                if needed > left:
                    needs = f"takes up {size_text(needed)}, but the stack has {size_text(left)}"
                    self.cell.problem(
                        ("workload", load.name), f"this {needs} for it: make one smaller or the other larger"
                    )
                    break
                left -= needed

    def layers(self, path: Path, *, may_be_empty: bool = False) -> tuple[Layer, ...] | None:
        """Read the stack that is written at ``path``; ``None`` if that failed, and was reported."""
        written: Any = self.raw
        for part in path:
            written = written.get(part) if isinstance(written, dict) else None
        if written is None and may_be_empty:
            return ()
        if written is None:
            self.cell.problem(path, 'a stack is missing: write stack = [{ layer = "directory" }], or other layers')
            return None
        tree = self.cell.substitution.apply(written, path)
        if isinstance(tree, dict):  # one layer needs no list
            self.cell.substitution.origins[(*path, 0)] = self.cell.substitution.origin_of(path)
            tree = [tree]
        if not isinstance(tree, list) or (not tree and not may_be_empty):
            self.cell.problem(
                path, f"{shown(tree)} is not a stack: write a list of one or more layers, the lowest first"
            )
            return None
        layers = [self._layer(item, (*path, index)) for index, item in enumerate(tree)]
        return None if None in layers else tuple(layer for layer in layers if layer is not None)

    def _layer(self, tree: Any, path: Path) -> Layer | None:
        kinds = layer_types()
        if not isinstance(tree, dict) or "layer" not in tree:
            known = ", ".join(kinds)
            self.cell.problem(path, f'{shown(tree)} is not a layer: write {{ layer = "…" }}; there are: {known}')
            return None
        kind = tree["layer"]
        if not isinstance(kind, str) or kind not in kinds:
            gone = ABSENT.get(kind) if isinstance(kind, str) else None
            named = f"layer {shown(kind)}"
            there = "; a disk, array or folder that exists already is a `device` or a `directory`"
            message = f"{named} is unsupported: {gone}" if gone else unknown(named, kind, kinds) + there
            self.cell.problem((*path, "layer"), message)
            return None
        layer: Layer | None = self.cell.model(kinds[kind], tree, path)
        return layer


def _layers(chain: Chain, chains: Chains) -> list[Layer]:
    """All that a chain stands on, the lowest first."""
    return [layer for each in reversed([*down(chain, chains)]) for layer in each.layers]


def _room(layers: Sequence[Layer]) -> int | None:
    """The bytes that fit into what these layers give, one upon the other, where the study says how many."""
    sizes = [size for layer in layers if (size := layer.capacity()) is not None]
    return sizes[-1] if sizes else None
