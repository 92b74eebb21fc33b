"""A node of this machine, sites on it and a guest of it, for layers that are set up without a study around them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from storlab.images.image import find_image
from storlab.layers import stack
from storlab.layers.base import Layer, LayerContext, Shared
from storlab.layers.stack import BuiltStack
from storlab.nodes.demands import Devices
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.emulator import find_acceleration, qemu_version
from storlab.nodes.kinds.vm.guest import Guest, running_guest, saved_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.node import Node
from storlab.nodes.undo import Entry
from storlab.registry import layer_types
from storlab.run.recovery.undoing import undo_table

T = TypeVar("T")

RUN = "20260102-030405-abcd"


@dataclass
class Ground:
    """A node, a scratch folder on it, and a journal. ``shared`` is one foundation for all owners."""

    node: Node
    scratch: str
    journal: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    foundation: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    shared: Shared = field(init=False)

    def __post_init__(self) -> None:
        async def register_undo(*entries: Entry) -> None:
            self.foundation.extend(entries)

        self.shared = Shared(register_undo)

    def context(self, position: int = 0, owner: str = "", node: Node | None = None) -> LayerContext:
        async def register_undo(*entries: Entry) -> None:
            self.journal.extend(entries)

        return LayerContext(node or self.node, self.scratch, position, RUN, register_undo, owner, self.shared)

    async def set_up(
        self, *layers: Mapping[str, Any], owner: str = "", node: Node | None = None, facts: bool = True
    ) -> BuiltStack:
        """A whole stack, from its tables in a study file."""
        built = await stack.set_up(parse(layers), lambda position: self.context(position, owner, node))
        if facts:
            await built.read_facts()
        return built

    async def tear_down(self) -> list[str]:
        """Undo everything, newest first; says what was done. A second time nothing may be left to do."""
        entries = [*self.foundation, *self.journal]
        did = [await undo_table()[name].function(self.node, **arguments) for name, arguments in reversed(entries)]
        again = [await undo_table()[name].function(self.node, **arguments) for name, arguments in reversed(entries)]
        assert again == [None] * len(entries)
        return [words for words in did if words is not None]


def parse(layers: Sequence[Mapping[str, Any]]) -> list[Layer]:
    return [layer_types()[layer["layer"]].model_validate(layer) for layer in layers]


@asynccontextmanager
async def ground_in(folder: Path) -> AsyncIterator[Ground]:
    """On this machine; all is torn down in the end, twice, and nothing may be left in the scratch folder."""
    scratch = folder / f"storlab-{RUN}" / "host"
    scratch.mkdir(parents=True)
    async with local_node("host") as node:
        ground = Ground(node, str(scratch))
        try:
            yield ground
        finally:
            await ground.tear_down()
        assert [path.name for path in await asyncio.to_thread(lambda: [*scratch.rglob("*")])] == []


@contextmanager
def entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What an asynchronous context gives, for a fixture."""
    made = runner.run(context.__aenter__())
    try:
        yield made
    finally:
        runner.run(context.__aexit__(None, None, None))


@asynccontextmanager
async def guest(
    host: Node,
    name: str,
    disks: Sequence[Devices],
    *extras: str,
    memory: str = "1G",
    hardware: Mapping[str, Any] | None = None,
    **network: Any,
) -> AsyncIterator[Guest]:
    """A real guest with these disks, whose image has these extras. ``network``: of ``GuestSpec``.

    It is a copy of a saved one, which costs a tenth of a boot, unless ``hardware`` is such that it can't be.
    """
    image = find_image(frozenset(extras))
    initrd = initrd_with_agent(image)
    acceleration = await find_acceleration(image, initrd, host)
    made = Hardware.model_validate({"memory": memory, **(hardware or {})})
    devices = Devices()
    for each in disks:
        devices += each
    version = await qemu_version()
    spec = GuestSpec(name, made, image, initrd, acceleration.accelerator, devices, qemu=version, **network).with_ports()
    with tempfile.TemporaryDirectory(prefix="sl-guest-") as path:
        folder = Path(path)
        files = Files(folder / "qmp", folder / "agent", folder / "console")
        saved = await saved_guest(spec, host, folder, lambda _: None) if made.is_copied else None
        async with running_guest(spec, host, files, saved, lambda guest: None) as running:
            yield running
