"""What confining a load costs: at its start, and while it creates, opens and removes files in memory.

    uv run python -m benchmarks.confinement [--quick] [--json FILE]

Three sides take turns, each time in another order: ``free``, not confined; ``confined``, as loads are; ``rules``, by
rules of Landlock for paths, which would do without root what Storlab does by a mount namespace. The load is a small C
program: a file is created in a directory six levels deep on tmpfs, written, closed, looked at, opened, closed and
removed. Ratios are the median over rounds, with their range. A start is that of `true`, from asking until it has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Confinement, Node

SOURCES = Path(__file__).parent / "confinement_programs"
SIDES = ("free", "confined", "rules")
FILES = 60_000


def main() -> None:
    """Run them and print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="three rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    figures = asyncio.run(measured(3 if chosen.quick else 15))
    print(table(figures))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2))


def compile_programs(folder: str) -> None:
    """The load, and what confines by rules."""
    for name in ("files", "rules"):
        subprocess.run(["gcc", "-O2", "-o", f"{folder}/{name}", SOURCES / f"{name}.c"], check=True)


async def measured(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each side by what was measured."""
    figures: dict[str, dict[str, list[float]]] = {what: {side: [] for side in SIDES} for what in ("files", "start")}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="storlab-bench-") as folder:
        compile_programs(folder)
        target = Path(folder, "a", "b", "c", "d")
        target.mkdir(parents=True)
        async with local_node("host") as node:
            for _ in range(rounds):
                for side in random.sample(SIDES, len(SIDES)):
                    for what, argv in (("files", (f"{folder}/files", str(target), str(FILES))), ("start", ("true",))):
                        figures[what][side].append(await seconds(node, side, folder, argv))
    return figures


async def seconds(node: Node, side: str, folder: str, argv: Sequence[str]) -> float:
    """One run: of ``true`` as seen from here, of others as seen by the agent."""
    if side == "confined":
        node = node.confined(Confinement((folder,)))
    argv = [f"{folder}/rules", folder, *argv] if side == "rules" else list(argv)
    began = time.perf_counter()
    ended = await node.run(argv)
    return time.perf_counter() - began if argv[-1] == "true" else ended.elapsed


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """Medians, and ratios to what isn't confined."""
    lines = ["|  | free | confined | ratio | rules | ratio |", "| --- | --- | --- | --- | --- | --- |"]
    for what, sides in figures.items():
        unit, scale = ("ms a start", 1e3) if what == "start" else ("µs a file", 1e6 / FILES)
        cells = [f"{statistics.median(sides['free']) * scale:.1f}"]
        for side in SIDES[1:]:
            ratios = [mine / free for mine, free in zip(sides[side], sides["free"], strict=True)]
            cells.append(f"{statistics.median(sides[side]) * scale:.1f}")
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        lines.append(f"| {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
