"""A capture of 1.5 million packets: Storlab beside tcptrace and tshark, in one run.

    uv run --group bench python -m benchmarks.pcap [--quick] [--json FILE]

The capture is written here with a recorded seed: eight connections that read from a server, two full segments and an
ACK in turn, with timestamps, 96 bytes kept of each packet, as `tcpdump -s 96` leaves them. tcptrace computes round
trips as well (``-r``), as Storlab does, and without (``tcptrace, plain``); tshark sums up its connections
(``-z conv,tcp``), and reads every protocol that it knows.

Sides are whole processes: ``agent`` is the program that reads captures, alone; ``storlab, read`` the parser in an
interpreter of its own, to all that it says of the connections; and ``storlab, import`` the command with the libraries
that it loads and the run that it writes, whose copy of the capture is on disk when it ends. Sides take turns (tshark
runs once: it takes a minute); a ratio is the median over rounds, with its range. Memory is the largest resident set;
what takes less than the 15 MiB that a process inherits from this program is shown with that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from storlab.base.programs import agent_path

SEED = 20261123
SNAP = 96
CONNECTIONS, MSS = 8, 1448
READ = """import sys
from pathlib import Path
from storlab.tools.pcap.capture import read_capture
read_capture(open(sys.argv[2], "rb"), "x", Path(sys.argv[1]))"""
OURS = "agent", "storlab, read", "storlab, import"


@dataclass(frozen=True)
class Run:
    """One run of one side: seconds, CPU seconds, largest resident set in bytes."""

    seconds: float
    cpu: float
    memory: int


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a tenth of the packets and two rounds")
    options.add_argument("--repeats", type=int)
    options.add_argument("--json", type=Path, help="write the figures there too")
    options.add_argument("--write", type=Path, metavar="FILE", help="write the capture, and end")
    chosen = options.parse_args()
    packets = 150_000 if chosen.quick else 1_500_000
    if chosen.write:
        write_capture(chosen.write, packets)
        return
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as folder:
        capture = Path(folder) / "capture.pcap"
        # By a process of its own: a child's memory would begin with the most that this one ever had.
        again = [sys.executable, "-m", "benchmarks.pcap", *sys.argv[1:], "--write", str(capture)]
        subprocess.run(again, check=True, cwd=Path(__file__).parent.parent)
        runs = compare(capture, chosen.repeats or (2 if chosen.quick else 5))
    print(table(runs))
    if chosen.json:
        figures = {side: [asdict(run) for run in each] for side, each in runs.items()}
        chosen.json.write_text(json.dumps({"packets": packets, "seed": SEED, "runs": figures}, indent=2) + "\n")


def write_capture(path: Path, packets: int) -> None:
    """Reads of a server by eight connections, whose packets come in bursts of 48."""
    import numpy as np  # only here: see ``main``

    drawn = np.random.default_rng(SEED)
    owner = np.repeat(drawn.integers(0, CONNECTIONS, size=packets // 48 + 1), 48)[:packets]
    order = np.argsort(owner, kind="stable")
    owner = owner[order]
    turn, step = np.divmod(np.arange(packets) - np.searchsorted(owner, np.arange(CONNECTIONS))[owner], 3)
    is_ack = step == 2
    length = 66 + np.where(is_ack, 0, MSS)
    frames = np.zeros((packets, SNAP), dtype=np.uint8)
    frames[:, [12, 14, 22, 23, 46, 47, 48]] = 8, 0x45, 64, 6, 8 << 4, 0x10, 0x10
    frames[:, 54:58] = 1, 1, 8, 10
    client, server = np.array([10, 0, 0, 1]), np.array([10, 0, 0, 2])
    ports = np.where(is_ack, (700 + owner) << 16 | 2049, 2049 << 16 | 700 + owner)
    sequence = np.where(is_ack, 7392, 1000 + (turn * 2 + np.minimum(step, 1)) * MSS)
    acked = np.where(is_ack, 1000 + (turn + 1) * 2 * MSS, 7392)
    times = np.cumsum(drawn.exponential(1e-5, packets))
    frames[:, 26:30], frames[:, 30:34] = (
        np.where(is_ack[:, None], a, b) for a, b in ((client, server), (server, client))
    )
    for at, width, numbers in ((16, 2, length - 14), (34, 4, ports), (38, 4, sequence), (42, 4, acked)):
        frames[:, at : at + width] = numbers.astype(f">u{width}").view(np.uint8).reshape(-1, width)
    heads = np.stack([1.3e9 + times[order], times[order] % 1 * 1e6, np.minimum(length, SNAP), length], axis=1)
    records = np.concatenate([heads.astype("<u4").view(np.uint8).reshape(-1, 16), frames], axis=1)
    in_time, sizes = np.empty_like(records), np.empty(packets, dtype=np.int64)
    in_time[order], sizes[order] = records, 16 + np.minimum(length, SNAP)
    kept = np.arange(16 + SNAP)[None] < sizes[:, None]
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAP, 1)
    path.write_bytes(head + in_time[kept].tobytes())


def compare(capture: Path, repeats: int) -> dict[str, list[Run]]:
    """All sides in turn."""
    program, agent = str(Path(sys.executable).with_name("storlab")), str(agent_path())
    sides = {
        "agent": [agent, "pcap", str(capture)],
        "storlab, read": [sys.executable, "-c", READ, agent, str(capture)],
        "storlab, import": [program, "import", "pcap", str(capture), "--out", f"{capture.parent}/run"],
        "tcptrace": ["tcptrace", "-l", "-r", "-n", str(capture)],
        "tcptrace, plain": ["tcptrace", "-l", "-n", str(capture)],
        "tshark": ["tshark", "-n", "-q", "-z", "conv,tcp", "-r", str(capture)],
    }
    sides = {side: argv for side, argv in sides.items() if shutil.which(argv[0])}
    runs: dict[str, list[Run]] = {side: [] for side in sides}
    for at in range(repeats + 1):
        for side, argv in sides.items():
            if side == "tshark" and at != 1:
                continue
            shutil.rmtree(capture.parent / "run", ignore_errors=True)
            run = one(argv)
            runs[side] += [run] if at else []  # the first is to compile, and to fill caches
    return runs


def one(argv: list[str]) -> Run:
    started = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[0]} ended with status {process.returncode}")
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def table(runs: dict[str, list[Run]]) -> str:
    lines = [f"{'side':16} {'seconds':>8} {'CPU s':>7} {'MiB':>6}"]
    for side, each in runs.items():
        seconds, cpu, memory = (
            statistics.median(getattr(run, name) for run in each) for name in ("seconds", "cpu", "memory")
        )
        lines.append(f"{side:16} {seconds:8.2f} {cpu:7.2f} {memory / 2**20:6.0f}")
    for own in OURS:
        lines += [ratios(own, runs[own], side, runs[side]) for side in runs if side not in OURS]
    return "\n".join(lines) + "\n"


def ratios(side: str, own: list[Run], peer: str, others: list[Run]) -> str:
    """How many times the CPU of ours the peer takes, and our memory as a share of its."""
    each = sorted(other.cpu / run.cpu for run, other in zip(own, others, strict=False))
    memory = max(run.memory for run in own) / max(run.memory for run in others)
    said = f"{statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})"
    return f"{side}: {peer} takes {said} times its CPU; of its memory {memory:.3f}"


if __name__ == "__main__":
    main()
