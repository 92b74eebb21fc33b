"""A guest with a shared folder, from asking for it to the first ``stat`` in the folder, beside virtme-ng's own root.

    uv run python -m benchmarks.share_start [--quick] [--json FILE]

``cold`` and ``restored``: a virtiofsd is started, then a guest that is booted or a copy of a saved one, its folder is
mounted, and `stat` run in it. ``virtme-ng``: `vng --run … --exec` on a root that it shares with the guest by itself,
over virtiofs or 9p (boot_virtme.py), until a first command has run. The sides take turns; a ratio is the median over
rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.boot_storlab import Laboratory
from benchmarks.boot_virtme import Virtme
from storlab.base.errors import MissingImage
from storlab.images.image import Image, find_image
from storlab.layers.attach.virtiofs import VirtiofsdLayer, VirtiofsLayer
from storlab.layers.base import LayerContext
from storlab.layers.resources import Dir
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.nodes.undo import Entry

_RUN = "20260101-000000-0000"
Side = Callable[[], Coroutine[Any, Any, float]]


def main() -> None:
    """Start them and print the medians and ratios."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    try:
        image = find_image()
    except MissingImage as error:
        raise SystemExit(str(error)) from None
    said = asyncio.run(_measured(image, 2 if chosen.quick else 7))
    for name, value in said.items():
        print(f"{name:24} {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(said, indent=2) + "\n")


async def _measured(image: Image, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as made:  # short, for sockets
        async with Laboratory.of(image, Path(made)) as laboratory:
            virtme = await Virtme.prepared(image, Path(made) / "virtme", kvm=laboratory.accelerator == "kvm")

            async def of_virtme() -> float:
                return (await virtme.start(1)).command

            sides: Mapping[str, Side] = {
                "cold": lambda: _first_stat(laboratory, Hardware(start="cold")),
                "restored": lambda: _first_stat(laboratory, Hardware(start="restored")),
                "virtme-ng": of_virtme,
            }
            for side in sides.values():
                await side()
            found = [{name: await side() for name, side in sides.items()} for _ in range(rounds)]
            seconds = {name: round(statistics.median(each[name] for each in found), 2) for name in sides}
            ratios = {
                f"restored / {other}": round(statistics.median(each["restored"] / each[other] for each in found), 3)
                for other in ("cold", "virtme-ng")
            }
            about = {"virtme-ng's root over": virtme.root_over, "load": os.getloadavg()}
            return {**{f"{name} s": value for name, value in seconds.items()}, **ratios, **about}


async def _first_stat(laboratory: Laboratory, hardware: Hardware) -> float:
    """Seconds."""

    async def nothing(*entries: Entry) -> None:
        """It goes with the benchmark's folder."""

    folder = laboratory.folder / f"storlab-{_RUN}-{next(laboratory.numbers)}"
    (folder / "shared").mkdir(parents=True)
    daemon, mount = VirtiofsdLayer(), VirtiofsLayer()
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        on_host = LayerContext(laboratory.host, str(folder), 0, _RUN, nothing)
        share = await daemon.set_up(Dir("host", str(folder / "shared")), on_host)
        stack.push_async_callback(daemon.kill, on_host)
        guest = await laboratory.guest(stack, hardware, mount.demands(share, "disk0"))
        inside = LayerContext(guest.node, f"/tmp/storlab-{_RUN}", 1, _RUN, nothing)
        shared = await mount.set_up(share, inside)
        await guest.node.run(["stat", "--", shared.path])
        return time.monotonic() - began


if __name__ == "__main__":
    main()
