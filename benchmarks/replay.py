"""How the time of replaying a log of writes grows with its bytes.

    uv run python -m benchmarks.replay [--quick] [--json FILE]

Logs of 32 to 256 MiB (quick: 8 to 64), of writes of 4k to 64k at random places of one disk, drawn by a recorded seed,
as dm-log-writes has them. CPU seconds of reading the log and writing all of it onto an image, the least of the turns;
sizes take turns. A linear replay takes as long for each byte at every size: the ratio of the largest to the smallest
is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

from storlab.crash.check import replaying
from storlab.tools.log_writes import ENTRY, HEAD, MAGIC, read_log

MIB = 2**20
SECTOR, DISK = 512, 128 * MIB
LENGTHS = (4096, 16384, 65536)
SEED = 20261124


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a quarter of the data and two turns")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    sizes = [size * MIB // (4 if chosen.quick else 1) for size in (32, 64, 128, 256)]
    turns = 2 if chosen.quick else 7
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-", dir="/var/tmp") as made:
        logs = {size: write_log(Path(made) / f"{size}.log", size) for size in sizes}
        taken: dict[int, list[float]] = {size: [] for size in sizes}
        for turn in range(turns):
            for size in sizes if turn % 2 else reversed(sizes):
                taken[size].append(replay(logs[size], Path(made) / "image"))
    found = {"load average": os.getloadavg()[0], "seed": SEED, "ns for each byte": per_byte(taken)}
    print(table(per_byte(taken)))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


def write_log(path: Path, size: int) -> Path:
    """Entries whose data are at least ``size`` bytes together."""
    drawn, entries, total = random.Random(SEED), 0, 0
    data = drawn.randbytes(max(LENGTHS))
    with path.open("wb") as file:
        file.write(bytes(SECTOR))
        while total < size:
            length = drawn.choice(LENGTHS)
            at = drawn.randrange((DISK - length) // SECTOR)
            file.write(ENTRY.pack(at, length // SECTOR, 0, 0).ljust(SECTOR, b"\0") + data[:length])
            entries, total = entries + 1, total + length
        file.seek(0)
        file.write(HEAD.pack(MAGIC, 1, entries, SECTOR))
    return path


def replay(path: Path, image: Path) -> float:
    """CPU seconds, onto an image that has all its blocks."""
    image.write_bytes(bytes(DISK))
    began = time.process_time()
    log = read_log(path)
    with replaying(log, image) as replaying_it:
        replaying_it.write_all(log.entries)
    return time.process_time() - began


def per_byte(taken: dict[int, list[float]]) -> dict[int, float]:
    """Size → nanoseconds for each byte."""
    return {size: 1e9 * min(seconds) / size for size, seconds in taken.items()}


def table(found: dict[int, float]) -> str:
    """For people."""
    lines = [f"{size // MIB:5} MiB  {each:6.3f} ns of CPU for each byte" for size, each in found.items()]
    first, *_, last = found.values()
    return "\n".join([*lines, f"largest / smallest: {last / first:.2f}"])


if __name__ == "__main__":
    main()
