"""What it takes to set up a disk or a directory over the network and to tear it down, beside the bare commands.

    uv run python -m benchmarks.net_setup [--quick] [--json FILE]

Both sides work in the same two guests, one of which serves what the other uses, over each protocol in turn; the file or
directory that is served is there beforehand. ``storlab``: the two layers with all that they read back as facts, as in
a trial, and then what they have journalled. ``bare``: shell scripts that do the same (net_setup_bare.py), one each for
setting up and tearing down on either guest, without reading anything back, and without anything that watches.

Seconds are those from the first command to the last one's answer. Sides take turns, after one turn that does not count;
a ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.net_setup_bare import BARE
from storlab.base.errors import MissingImage
from storlab.images.image import Image, find_image
from storlab.layers.base import Layer, LayerContext, Shared
from storlab.layers.resources import Dir, File, Resource
from storlab.nodes.demands import Devices
from storlab.nodes.kinds.local import local_node
from storlab.nodes.kinds.vm.command import Files, GuestSpec
from storlab.nodes.kinds.vm.emulator import find_acceleration
from storlab.nodes.kinds.vm.guest import running_guest
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.kinds.vm.kind import initrd_with_agent
from storlab.nodes.network import RunNetwork, remove_network
from storlab.nodes.node import Node, Process
from storlab.nodes.undo import Entry
from storlab.registry import layer_types
from storlab.run.beginning import new_run_id
from storlab.run.recovery.undoing import undo_table

LAYERS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "nbd": ({"layer": "nbd-export"}, {"layer": "nbd"}),
    "iscsi": ({"layer": "iscsi-target"}, {"layer": "iscsi"}),
    "nvme-tcp": ({"layer": "nvme-target"}, {"layer": "nvme-tcp"}),
    "aoe": ({"layer": "aoe-target"}, {"layer": "aoe"}),
    "nfs": ({"layer": "nfs-export", "versions": ["4"]}, {"layer": "nfs"}),
}
_SIZE = 64 * 1024**2


@dataclass(frozen=True)
class Seconds:
    """Of one turn of one side."""

    up: float
    down: float


@dataclass
class Pair:
    """Two guests in one network; ``run`` is in the names of all that is made there."""

    server: Node
    client: Node
    run: str

    @property
    def scratch(self) -> str:
        """Storlab's own folder in each guest."""
        return f"/tmp/storlab-{self.run}/here"

    async def storlab(self, protocol: str) -> Seconds:
        """By the two layers."""
        journal: list[tuple[Node, str, Mapping[str, Any]]] = []
        below: Resource = self._served(protocol)
        began = time.monotonic()
        for at, (node, keys) in enumerate(zip((self.server, self.client), LAYERS[protocol], strict=True)):
            layer: Layer = layer_types()[keys["layer"]].model_validate(keys)
            context = self._context(node, at, journal)
            below = await layer.set_up(below, context)
            await layer.facts(below, context)
        up = time.monotonic()
        for node, name, arguments in reversed(journal):
            await undo_table()[name].function(node, **arguments)
        return Seconds(up - began, time.monotonic() - up)

    def _context(self, node: Node, at: int, journal: list[tuple[Node, str, Mapping[str, Any]]]) -> LayerContext:
        async def register(*entries: Entry) -> None:
            journal.extend((node, *entry) for entry in entries)

        return LayerContext(node, self.scratch, at, self.run, register, "client", Shared(register))

    async def bare(self, protocol: str) -> Seconds:
        """By the scripts."""
        scripts = BARE[protocol]
        began = time.monotonic()
        server = await self._begin(self.server, scripts.serve, protocol)
        client = await self._begin(self.client, scripts.use, protocol)
        up = time.monotonic()
        await self._end(self.client, scripts.leave, client)
        await self._end(self.server, scripts.withdraw, server)
        return Seconds(up - began, time.monotonic() - up)

    async def _begin(self, node: Node, script: str, protocol: str) -> Process:
        words = [str(self._served(protocol).words()["target"]), str(self.server.address)]
        process = await node.start(["sh", "-c", f"set -e\n{script}", "bare", *words])
        if await process.first_line() != b"up":
            ended = await process.wait()
            raise SystemExit(f"{protocol}, {node.name}: {ended.describe()}\n{ended.stderr.decode(errors='replace')}")
        return process

    @staticmethod
    async def _end(node: Node, script: str, process: Process) -> None:
        await node.run(["sh", "-c", script])
        if process.ended is None:
            await process.stop(10.0)
            await process.wait()

    def _served(self, protocol: str) -> File | Dir:
        name = self.server.name
        return Dir(name, f"{self.scratch}/tree") if protocol == "nfs" else File(name, f"{self.scratch}/disk", _SIZE)


def main() -> None:
    """Take turns, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two rounds")
    options.add_argument("--rounds", type=int, help="how many turns each side has")
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("protocols", nargs="*", metavar="PROTOCOL", help=f"of {', '.join(LAYERS)} (default: all)")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("a network among guests takes root: run it as root")
    try:
        image = find_image()
    except MissingImage as error:
        raise SystemExit(str(error)) from None
    rounds = chosen.rounds or (2 if chosen.quick else 9)
    said = asyncio.run(measured(image, chosen.protocols or list(LAYERS), rounds))
    print(table(said))
    if chosen.json:
        chosen.json.write_text(json.dumps(said, indent=2) + "\n")


async def measured(image: Image, protocols: list[str], rounds: int) -> dict[str, Any]:
    """All turns, and their medians."""
    async with two_guests(image) as (pair, accelerator):
        turns: dict[str, list[dict[str, Seconds]]] = {protocol: [] for protocol in protocols}
        for at in range(rounds + 1):
            for protocol in protocols:
                sides = {"storlab": pair.storlab, "bare": pair.bare}
                order = sorted(sides, reverse=bool(at % 2))
                found = {side: await sides[side](protocol) for side in order}
                if at:  # the first loads modules
                    turns[protocol].append(found)
    figures = {protocol: medians(each) for protocol, each in turns.items()}
    return {"kernel": image.release, "accelerator": accelerator, "rounds": rounds, "protocols": figures}


def medians(turns: list[dict[str, Seconds]]) -> dict[str, dict[str, float]]:
    """Of setting up, tearing down and both: each side's median, and their ratio."""
    found = {}
    for name, parts in {"up": ("up",), "down": ("down",), "both": ("up", "down")}.items():
        seconds = {
            side: statistics.median(sum(getattr(turn[side], part) for part in parts) for turn in turns)
            for side in turns[0]
        }
        found[name] = {**seconds, "ratio": seconds["storlab"] / seconds["bare"]}
    return found


@asynccontextmanager
async def two_guests(image: Image) -> AsyncIterator[tuple[Pair, str]]:
    """A server and a client, booted, with what is to be served."""
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(local_node("host"))
        run = new_run_id()
        network = RunNetwork(f"{run}-{secrets.token_hex(4)}", lambda: host, lambda *names, **arguments: None)
        stack.push_async_callback(remove_network, host, name=network.name)
        initrd = initrd_with_agent(image)
        found = await find_acceleration(image, initrd, host)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sl-net-")))
        within = tuple(await network.enter())

        async def start(name: str) -> Node:
            card = await network.tap()
            hardware = Hardware.model_validate({"memory": "512M", "start": "cold"})
            spec = GuestSpec(name, hardware, image, initrd, found.accelerator, Devices(), card=card, within=within)
            files = Files(*(folder / f"{name}.{kind}" for kind in ("qmp", "agent", "console")))
            guest = await stack.enter_async_context(running_guest(spec, host, files, None, lambda guest: None))
            return guest.node

        pair = Pair(await start("server"), await start("client"), run)
        for node in (pair.server, pair.client):
            await node.run(["mkdir", "--parents", f"{pair.scratch}/tree"])
        await pair.server.run(["truncate", f"--size={_SIZE}", f"{pair.scratch}/disk"])
        yield pair, str(found.accelerator)


def table(said: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"kernel {said['kernel']}, {said['accelerator']}, {said['rounds']} rounds; seconds",
        f"{'protocol':9} {'':5} {'storlab':>8} {'bare':>8} {'ratio':>6}",
    ]
    for protocol, parts in said["protocols"].items():
        for name, each in parts.items():
            lines.append(f"{protocol:9} {name:5} {each['storlab']:8.2f} {each['bare']:8.2f} {each['ratio']:6.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
