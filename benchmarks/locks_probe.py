"""What watching waits for locks costs: `storlab-agent locks` beside bpftrace's same program, for each wait.

    uv run python -m benchmarks.locks_probe [--quick] [--json FILE]

Contention is planted: four programs write to one pipe as fast as they can, and a fifth reads it, so all of them wait
for the pipe's mutex. Both sides watch at the same time, and so the same waits; which is attached first, and so runs
first, changes from round to round. The kernel measures each program (``kernel.bpf_stats_enabled``): nanoseconds for a
wait are the time of all programs of a side by the number of waits that ended. The measuring itself is part of it, and
of ``floor``: two programs that do nothing, at the same tracepoints, which watch at the same time as well.

Both sides count waits, add up their time and keep a histogram of it, by type of lock and by who waits; a mutex that
reports its wait several times counts once. Storlab finds the function that waits within the kernel, and also keeps
which locks there were, and whether a wait slept; bpftrace keeps the innermost eight frames. ``waits seen``: those that
Storlab counted for each that bpftrace did. Ratios are medians over rounds, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.trace_cost import measuring, programs_of, see_tracefs, stats_of, watching
from benchmarks.trace_floor import attached
from storlab.base.programs import agent_path

Programs = list[tuple[int, int]]
"""How often each program of a side ran, and for how many nanoseconds."""

SIDES = ("storlab", "bpftrace")
_TRACEPOINTS = (b"contention_begin", b"contention_end")
_BPFTRACE = """
    tracepoint:lock:contention_begin {
        if (!@begun[tid, args->lock_addr]) {
            @kind[tid, args->lock_addr] = args->flags & 62;
            @begun[tid, args->lock_addr] = nsecs;
        }
    }
    tracepoint:lock:contention_end {
        $begun = @begun[tid, args->lock_addr];
        if ($begun) {
            $time = nsecs - $begun;
            $kind = @kind[tid, args->lock_addr];
            @sums[kstack(8), $kind] = stats($time);
            @times[kstack(8), $kind] = hist($time);
            delete(@begun[tid, args->lock_addr]);
            delete(@kind[tid, args->lock_addr]);
        }
    }"""
_LOAD = """
import os
read, write = os.pipe()
print("begun", flush=True)
for _ in range(4):
    if not os.fork():
        while True:
            os.write(write, bytes(4096))
while True:
    os.read(read, 1 << 16)
"""


def main() -> None:
    """Watch, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two short rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("only root may watch locks of the kernel: run it as root")
    see_tracefs("benchmarks.locks_probe")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the load ends
    rounds, seconds = (2, 1.0) if chosen.quick else (8, 2.0)
    with measuring(), contention():
        found = [one_round(SIDES[:: 1 if number % 2 else -1], seconds) for number in range(rounds)]
    print(table(found))
    if chosen.json:
        chosen.json.write_text(json.dumps({"rounds": found, "load": os.getloadavg()}, indent=2) + "\n")


@contextmanager
def contention() -> Iterator[None]:
    """Programs that wait for each other, as long as the context lasts."""
    argv = [sys.executable, "-c", _LOAD]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def one_round(order: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """Side → nanoseconds for each wait, and waits a second; sides are attached in this order."""
    commands = {"storlab": [str(agent_path()), "locks"], "bpftrace": ["bpftrace", "-e", _BPFTRACE]}
    with ExitStack() as stack:
        pids = {side: stack.enter_context(watching(commands[side])) for side in order}
        floor = [stack.enter_context(attached(tracepoint)) for tracepoint in _TRACEPOINTS]

        def look() -> dict[str, Programs]:
            own = [stats_of(f"/proc/self/fdinfo/{program}") for program in floor]
            return {"floor": own, **{side: programs_of(pid) for side, pid in pids.items()}}

        until = time.monotonic() + 30
        while any(len(side) < len(_TRACEPOINTS) or not all(runs for runs, _ in side) for side in look().values()):
            if time.monotonic() > until:
                raise SystemExit(f"nothing waits for a lock, or a side is not attached: {look()}")
            time.sleep(0.1)
        before, begun = look(), time.monotonic()
        time.sleep(seconds)
        after, elapsed = look(), time.monotonic() - begun
    return {side: cost(before[side], after[side], elapsed) for side in ("floor", *SIDES)}


def cost(before: Programs, after: Programs, elapsed: float) -> dict[str, float]:
    """Of one side. The program that ran less often is the one at the end of a wait, which a mutex reports once."""
    runs, spent = zip(
        *((now[0] - then[0], now[1] - then[1]) for then, now in zip(before, after, strict=True)), strict=True
    )
    return {"nanoseconds": sum(spent) / max(min(runs), 1), "waits": min(runs) / elapsed}


def table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """Sides, then ratios."""
    lines = [f"{'side':<34}{'ns a wait':>12}{'range':>20}{'waits a second':>18}"]
    for side in rounds[0]:
        waits = statistics.median(each[side]["waits"] for each in rounds)
        lines.append(f"{side:<34}{_spread([each[side]['nanoseconds'] for each in rounds], 0)}{waits:>18,.0f}")

    def ratios(above: float) -> list[float]:
        found = []
        for each in rounds:
            ours, theirs = (each[side]["nanoseconds"] - above * each["floor"]["nanoseconds"] for side in SIDES)
            found.append(ours / theirs)
        return found

    seen = [each["storlab"]["waits"] / each["bpftrace"]["waits"] for each in rounds]
    lines += ["", f"{'storlab / bpftrace':<34}{_spread(ratios(0), 2)}"]
    lines += [f"{'the same above the floor':<34}{_spread(ratios(1), 2)}", f"{'waits seen':<34}{_spread(seen, 3)}"]
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int) -> str:
    span = f"{min(values):.{digits}f} to {max(values):.{digits}f}"
    return f"{statistics.median(values):>12.{digits}f}{span:>20}"


if __name__ == "__main__":
    main()
