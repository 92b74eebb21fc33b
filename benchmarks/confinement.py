"""What confining a load costs: a start, a system call, a read of 4 KiB from memory, and files in memory.

    uv run python -m benchmarks.confinement [--quick] [--json FILE]

Three sides take turns, each time in another order: ``free``, not confined; ``confined``, as loads are; ``rules``, by
rules of Landlock for paths, which would do without root what Storlab does by a mount namespace. The loads are small C
programs. ``files``: a file is created in a directory six levels deep on tmpfs, written, closed, looked at, opened,
closed and removed. ``calls``: getppid(2), the shortest system call, and pread(2) of a page of a file on tmpfs, the
shortest I/O. Ratios are the median over rounds, with their range. A start is that of `true`, from asking until it has
ended.
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
from pathlib import Path

from storlab.nodes.kinds.local import local_node
from storlab.nodes.node import Node
from storlab.nodes.privileges import confinement
from storlab.nodes.process import Exit

SOURCES = Path(__file__).parent / "confinement_programs"
SIDES = ("free", "confined", "rules")
FILES = 60_000
CALLS = 2_000_000
UNITS = {
    "start": ("ms a start", 1e3),
    "files": ("µs a file", 1e6),
    "call": ("ns a call", 1e9),
    "read": ("ns a read", 1e9),
}


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
    for name in ("files", "calls", "rules"):
        subprocess.run(["gcc", "-O2", "-o", f"{folder}/{name}", SOURCES / f"{name}.c"], check=True)


async def measured(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each side by what was measured."""
    figures: dict[str, dict[str, list[float]]] = {what: {side: [] for side in SIDES} for what in UNITS}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="storlab-bench-") as folder:
        compile_programs(folder)
        target, page = Path(folder, "a", "b", "c", "d"), Path(folder, "page")
        target.mkdir(parents=True)
        page.write_bytes(bytes(4096))
        async with local_node("host") as node:
            for _ in range(rounds):
                for side in random.sample(SIDES, len(SIDES)):
                    began = time.perf_counter()
                    await run(node, side, folder, "true")
                    figures["start"][side].append(time.perf_counter() - began)
                    files = await run(node, side, folder, f"{folder}/files", str(target), str(FILES))
                    figures["files"][side].append(files.elapsed / FILES)
                    calls = await run(node, side, folder, f"{folder}/calls", str(page), str(CALLS))
                    for what, took in zip(("call", "read"), calls.stdout.split(), strict=True):
                        figures[what][side].append(float(took) / 1e9)
    return figures


async def run(node: Node, side: str, folder: str, *argv: str) -> Exit:
    """One run."""
    if side == "confined":
        node = node.confined(confinement(node, writable=(folder,)))
    return await node.run([f"{folder}/rules", folder, *argv] if side == "rules" else argv)


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """Medians, and ratios to what isn't confined."""
    lines = ["|  | free | confined | ratio | rules | ratio |", "| --- | --- | --- | --- | --- | --- |"]
    for what, sides in figures.items():
        unit, scale = UNITS[what]
        cells = [f"{statistics.median(sides['free']) * scale:.1f}"]
        for side in SIDES[1:]:
            ratios = [mine / free for mine, free in zip(sides[side], sides["free"], strict=True)]
            cells.append(f"{statistics.median(sides[side]) * scale:.1f}")
            cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        lines.append(f"| {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
