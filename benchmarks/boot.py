"""Starting guests: Storlab's, booted and restored, beside virtme-ng's.

    uv run python -m benchmarks.boot [--quick] [--json FILE]

All boot the same kernel and get 512 MB and one CPU; Storlab's get a disk besides. Three sides, one guest and four at
once:

``cold``: a node is asked for, QEMU started, the kernel booted. ``restored``: the same with a copy of a guest that was
saved before. ``virtme-ng``: `vng --run … --exec`, with what makes it fast (boot_virtme.py).

``command``: seconds from asking until a command, `uname -r`, has run in the guest; of four, in the last one.
``answering``: until the agent answers. virtme-ng has no such thing, but ``emulated``: its seconds since QEMU
was started, without its own preparation. ``CPU``: seconds that the QEMUs took until the command had run, which say more
than the others on a machine that does other things too. The sides take turns, and a ratio is the median over rounds of
all three, with its range.

Memory is what QEMU costs this machine while the guest is idle: the pages of the guest's own RAM that are there, and all
others, each page divided by the number of those that share it (PSS, proc_pid_smaps(5)). ``agent`` and ``init``: what is
resident of the two in the guest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.boot_storlab import Laboratory, agent_memory
from benchmarks.boot_virtme import Virtme
from benchmarks.starts import Start
from storlab.base.errors import MissingImage
from storlab.images.image import Image, find_image

Sides = dict[str, Callable[[int], Coroutine[Any, Any, Start]]]
RATIOS = (("cold", "virtme-ng"), ("restored", "virtme-ng"), ("restored", "cold"))


def main() -> None:
    """Start them and print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two rounds")
    options.add_argument("--rounds", type=int, help="how often each side starts")
    options.add_argument("--guests", type=int, nargs="*", default=[1, 4], help="how many at once")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    try:
        image = find_image()
    except MissingImage as error:
        raise SystemExit(str(error)) from None
    said = asyncio.run(measured(image, chosen.guests, chosen.rounds or (2 if chosen.quick else 7)))
    print(table(said))
    if chosen.json:
        chosen.json.write_text(json.dumps(said, indent=2) + "\n")


async def measured(image: Image, counts: list[int], rounds: int) -> dict[str, object]:
    """All figures."""
    async with sides(image) as (all_sides, laboratory, virtme):
        found = {count: await compare(all_sides, count, rounds) for count in counts}
        return {
            "kernel": image.release,
            "accelerator": laboratory.accelerator,
            "virtme-ng": {"version": virtme.version, "root": virtme.root_over, "command": virtme.command_text},
            "guests": {str(count): figures(each) for count, each in found.items()},
            "agent": asdict(await agent_memory(laboratory)),
            "load": os.getloadavg(),
        }


@asynccontextmanager
async def sides(image: Image) -> AsyncIterator[tuple[Sides, Laboratory, Virtme]]:
    """The three, each started once before anything counts."""
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-", dir="/var/tmp") as made:
        async with Laboratory.of(image, Path(made)) as laboratory:
            virtme = await Virtme.prepared(image, Path(made) / "virtme", kvm=laboratory.accelerator == "kvm")
            found: Sides = {"cold": laboratory.cold, "restored": laboratory.restored, "virtme-ng": virtme.start}
            for side in found.values():
                await side(1)
            yield found, laboratory, virtme


async def compare(all_sides: Sides, count: int, rounds: int) -> list[dict[str, Start]]:
    """Rounds of all sides, each round in the opposite order of the one before."""
    found = []
    for at in range(rounds):
        order = list(all_sides) if at % 2 == 0 else list(reversed(all_sides))
        found.append({side: await all_sides[side](count) for side in order})
    return found


def figures(rounds: list[dict[str, Start]]) -> dict[str, object]:
    """Medians of each side, and ratios round by round."""
    starts = {side: [each[side] for each in rounds] for side in rounds[0]}
    return {
        "sides": {side: _medians([asdict(start) for start in each]) for side, each in starts.items()},
        "ratios": {
            f"{ours} / {theirs}": {
                name: _spread([getattr(each[ours], name) / getattr(each[theirs], name) for each in rounds])
                for name in ("command", "cpu")
            }
            for ours, theirs in RATIOS
        },
        "starts": {side: [asdict(start) for start in each] for side, each in starts.items()},
    }


def _medians(starts: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(start[name] for start in starts) for name in starts[0]}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _or_dash(seconds: float, width: int) -> str:
    return f"{seconds:{width}.2f}" if seconds else f"{'-':>{width}}"


def table(said: dict[str, object]) -> str:
    """For people."""
    virtme, agent, guests = said["virtme-ng"], said["agent"], said["guests"]
    assert isinstance(virtme, dict) and isinstance(agent, dict) and isinstance(guests, dict)
    lines = [
        f"kernel {said['kernel']}, {said['accelerator']}; virtme-ng {virtme['version']}, root over {virtme['root']}",
        f"{'guests':6} {'side':10} {'command s':>10} {'answering s':>12} {'emulated s':>11} {'CPU s':>7}"
        f" {'RAM MB':>7} {'others MB':>10}",
    ]
    for count, each in guests.items():
        for side, start in each["sides"].items():
            lines.append(
                f"{count:6} {side:10} {start['command']:10.2f} {_or_dash(start['answering'], 12)}"
                f" {_or_dash(start['emulated'], 11)}"
                f" {start['cpu']:7.2f} {start['ram'] / 1e6:7.0f} {start['others'] / 1e6:10.0f}"
            )
        for names, ratio in each["ratios"].items():
            said_of = ", ".join(
                f"{name} {of['median']:.2f} ({of['least']:.2f} to {of['most']:.2f})" for name, of in ratio.items()
            )
            lines.append(f"{'':6} {names}: {said_of}")
    resident = ", ".join(f"{name} {of / 1e6:.1f} MB" for name, of in agent.items())
    lines.append(f"memory is that of each QEMU; resident in a guest: {resident}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
