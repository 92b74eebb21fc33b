"""What watching costs: `storlab-agent trace` beside bpftrace, for each request, at its start, and in memory.

    uv run python -m benchmarks.trace_cost [--quick] [--json FILE]

fio, with io_uring and many requests in flight, reads and writes at random on a loop device over memory: the most
requests a second that this machine gives. Both sides watch the same requests at the same time; which is attached first,
and so runs first and finds less in the CPU's caches, changes from round to round. The kernel measures each program
(``kernel.bpf_stats_enabled``): nanoseconds for each request are the time of the programs of a side that run for each,
by the number of requests that were issued. What Storlab's do at merges, for any disk of the machine, is left out, since
bpftrace's program is not asked for it. The measuring itself is part of all figures, and of ``floor``: programs that do
nothing, one at the issue (``counts``) or another at the completion too (``latency``). ``clock``: these two, each of
which reads the clock once; nothing that times requests at these hooks can cost less. They are attached last.

``counts``: requests by device, operation and flags, length and alignment. Storlab keeps the alignments of offset and
length apart, and counts touched units, which bpftrace's program is not asked for. ``latency``: the same, and a
histogram of times from issue to completion; Storlab's has 16 bins an octave and a second one of the time in the queue,
bpftrace's has one bin an octave, by flags as well, since bpftrace 0.17 cannot take ``rwbs`` apart.

``start``: from the start of the program to the first request that it has seen, while fio runs. ``memory``: what is
resident then. Ratios are medians over rounds, with their range.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.trace_floor import READ_CLOCK, attached
from storlab.base.programs import agent_path

_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
_SHAPE = "$both = args->bytes | (args->sector << 9); @[args->dev, args->rwbs, args->bytes, $both & -$both] = count();"
BPFTRACE = {
    "counts": f"tracepoint:block:block_rq_issue {{ {_SHAPE} }}",
    "latency": f"""
        tracepoint:block:block_rq_issue {{ {_SHAPE} @start[args->dev, args->sector] = nsecs; }}
        tracepoint:block:block_rq_complete {{
            $start = @start[args->dev, args->sector];
            if ($start) {{
                @time[args->dev, args->rwbs] = hist(nsecs - $start);
                delete(@start[args->dev, args->sector]);
            }}
        }}""",
}
STORLAB = {"counts": ["--no-latency"], "latency": []}
WATCHED = ("counts", "latency")
_ISSUE, _COMPLETE = b"block_rq_issue", b"block_rq_complete"
FLOORS = {
    "floor counts": [(_ISSUE, b"")],
    "floor latency": [(_ISSUE, b""), (_COMPLETE, b"")],
    "clock latency": [(_ISSUE, READ_CLOCK), (_COMPLETE, READ_CLOCK)],
}
_FIO = "--rw=randrw --bs=512 --bsrange=512-16k --direct=1 --ioengine=io_uring --iodepth=32 --time_based --minimal"


def main() -> None:
    """Watch, and print the tables."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two short rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("only root may watch block I/O: run it as root")
    see_tracefs("benchmarks.trace_cost")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the disk is torn down
    rounds, seconds = (2, 1.0) if chosen.quick else (8, 3.0)
    with disk_in_memory() as disk, measuring():
        costs = [cost_of_sides(disk, seconds, backwards=bool(turn % 2)) for turn in range(rounds)]
        starts = [start_of_sides(disk) for _ in range(rounds)]
    figures = {"costs": costs, "starts": starts, "load": os.getloadavg()}
    print(cost_table(costs))
    print(start_table(starts))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


@contextmanager
def disk_in_memory() -> Iterator[str]:
    """A loop device over a file in memory."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="storlab-benchmark-") as file:
        file.truncate(256 << 20)
        device = _output("losetup", "--find", "--show", file.name)
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=False)


def see_tracefs(module: str) -> None:
    """Start this program once more where tracefs is mounted, if nobody has mounted it: bpftrace does not."""
    if Path("/sys/kernel/tracing/events").is_dir():
        return
    script = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'
    again = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", script, "sh", *again])


@contextmanager
def measuring() -> Iterator[None]:
    """The kernel measures its programs meanwhile."""
    before = _STATS.read_text()
    _STATS.write_text("1")
    try:
        yield
    finally:
        _STATS.write_text(before)


def cost_of_sides(disk: str, seconds: float, *, backwards: bool) -> dict[str, float]:
    """Side → nanoseconds for each request; the sides are attached in their order, or ``backwards``."""
    costs: dict[str, float] = {}
    for what in WATCHED:
        costs |= cost_of(disk, seconds, what, backwards)
    return costs


def cost_of(disk: str, seconds: float, what: str, backwards: bool) -> dict[str, float]:
    """The same of those sides that watch this."""
    watched = [(name, argv) for name, argv in sides().items() if name.endswith(what)]
    if backwards:
        watched.reverse()
    with ExitStack() as stack:
        pids = {name: stack.enter_context(watching(argv)) for name, argv in watched}
        floors = {
            name: [stack.enter_context(attached(*hook)) for hook in hooks]
            for name, hooks in FLOORS.items()
            if name.endswith(what)
        }

        def look() -> dict[str, list[tuple[int, int]]]:
            own = {name: [stats_of(f"/proc/self/fdinfo/{each}") for each in floors[name]] for name in floors}
            return own | {name: programs_of(pid) for name, pid in pids.items()}

        after = look()
        while True:
            before = after
            load(disk, seconds)
            after = look()
            if all(len(before[name]) == len(after[name]) for name in after):  # none was attached meanwhile
                return {name: per_request(before[name], after[name]) for name in after}


def sides() -> dict[str, list[str]]:
    """Name → command."""
    ours = {f"storlab {name}": [str(agent_path()), "trace", *argv] for name, argv in STORLAB.items()}
    return ours | {f"bpftrace {name}": ["bpftrace", "-e", program] for name, program in BPFTRACE.items()}


def start_of_sides(disk: str) -> dict[str, dict[str, float]]:
    """Side → seconds until its first request, bytes resident then and at most."""
    found = {}
    with subprocess.Popen(["fio", *fio(disk, 600)], stdout=subprocess.DEVNULL) as busy:
        try:
            time.sleep(2)  # until it is under way
            for name, argv in sides().items():
                if name.endswith(" latency"):
                    begun = time.monotonic()
                    with watching(argv, wait=False) as pid:
                        while not any(count for count, _ in programs_of(pid)) and time.monotonic() < begun + 30:
                            time.sleep(0.001)
                        seconds = time.monotonic() - begun
                        time.sleep(0.3)
                        found[name] = {
                            "start": seconds,
                            "resident": _status(pid, "VmRSS"),
                            "peak": _status(pid, "VmHWM"),
                        }
        finally:
            busy.send_signal(signal.SIGTERM)
    return found


@contextmanager
def watching(argv: Sequence[str], *, wait: bool = True) -> Iterator[int]:
    """The process that watches; with ``wait``, once its programs are there."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        while wait and len(programs_of(process.pid)) < 1:
            if process.poll() is not None:
                raise SystemExit(f"{argv[0]} ended with status {process.returncode}")
            time.sleep(0.01)
        if wait:
            time.sleep(0.3)  # the last of them
        yield process.pid
    finally:
        for ending in (*[signal.SIGINT] * 5, signal.SIGKILL):  # bpftrace 0.17 now and then misses one
            process.send_signal(ending)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break


def load(disk: str, seconds: float) -> None:
    """As many requests as there can be."""
    subprocess.run(["fio", *fio(disk, seconds)], stdout=subprocess.DEVNULL, check=True)


def fio(disk: str, seconds: float) -> list[str]:
    """Its arguments."""
    return ["--name=load", f"--filename={disk}", *_FIO.split(), f"--runtime={seconds:g}"]


def programs_of(pid: int) -> list[tuple[int, int]]:
    """How often each program of a process ran, and for how many nanoseconds in all."""
    found = []
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()) == "anon_inode:bpf-prog":
                found.append(stats_of(f"/proc/{pid}/fdinfo/{descriptor.name}"))
        except (OSError, KeyError):  # it was closed
            continue
    return found


def stats_of(fdinfo: str) -> tuple[int, int]:
    """Runs and nanoseconds of one program."""
    fields = dict(line.split(":", 1) for line in Path(fdinfo).read_text().splitlines())
    return int(fields["run_cnt"]), int(fields["run_time_ns"])


def per_request(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> float:
    """Nanoseconds for each request between two looks at the same programs: the one that ran most often runs once for
    each, and others that seldom run are for something else."""
    programs = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)]
    requests = max(count for count, _ in programs)
    return sum(spent for count, spent in programs if count > requests / 2) / requests


def cost_table(costs: Sequence[dict[str, float]]) -> str:
    """Sides, then ratios."""
    lines = ["", f"{'side':<20}{'ns a request':>14}{'range':>20}"]
    for side in costs[0]:
        lines.append(f"{side:<20}{_spread([cost[side] for cost in costs], 0)}")
    lines += ["", f"{'ratio':<36}{'':>6}{'range':>14}{'above the floor':>18}"]
    for what in WATCHED:
        a, b, floor = f"storlab {what}", f"bpftrace {what}", f"floor {what}"
        net = statistics.median((cost[a] - cost[floor]) / (cost[b] - cost[floor]) for cost in costs)
        lines.append(f"{a + ' / ' + b:<36}{_spread([cost[a] / cost[b] for cost in costs], 2, 6)}{net:>16.2f}")
    return "\n".join(lines)


def start_table(starts: Sequence[dict[str, dict[str, float]]]) -> str:
    """Start and memory of each side, then ratios."""
    lines = ["", f"{'side':<20}{'start, s':>12}{'resident, MB':>16}{'peak, MB':>12}"]
    middle = {
        side: {what: statistics.median(start[side][what] for start in starts) for what in starts[0][side]}
        for side in starts[0]
    }
    for side, of in middle.items():
        lines.append(f"{side:<20}{of['start']:>12.3f}{of['resident'] / 1e6:>16.1f}{of['peak'] / 1e6:>12.1f}")
    for a, b in itertools.pairwise(middle):
        ratios = (middle[a][what] / middle[b][what] for what in ("start", "resident", "peak"))
        lines.append(f"{'ratio':<20}{next(ratios):>12.3f}{next(ratios):>16.3f}{next(ratios):>12.3f}")
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int, width: int = 14) -> str:
    span = f"{min(values):.{digits}f} to {max(values):.{digits}f}"
    return f"{statistics.median(values):>{width}.{digits}f}{span:>{20 if width > 6 else 14}}"


def _status(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
