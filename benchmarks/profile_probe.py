"""What sampling CPUs costs: `storlab-agent profile` at 99 Hz beside `perf record -F 99`, in CPU time.

    uv run python -m benchmarks.profile_probe [--quick] [--json FILE]

fio, with io_uring and many requests in flight, keeps all CPUs busy on a loop device over memory, and both sides, which
take turns, sample all CPUs at the ticks of the same software clock, with stacks in the kernel and in programs.

``while it samples``: CPU time of the side's process in the measured seconds, as a share of one CPU. That of Storlab has
the time of its eBPF program as well, which walks the stacks; the kernel measures it (``kernel.bpf_stats_enabled``).
What perf's samples take within the kernel is charged to the programs that they interrupt, and is not in its figure.
``with names``: CPU seconds of one whole profile, from the start of the program until functions have their names, which
is part of `storlab-agent profile`, and of perf that of `perf record` and of `perf report`. Ratios are medians over
rounds, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.trace_cost import disk_in_memory, fio, measuring, programs_of
from storlab.base.programs import agent_path

_HERTZ = "99"
_START = 1.5  # s, until a side has begun
_LONGEST = 3600.0  # s, that fio works if nobody ends it


def main() -> None:
    """Sample, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two short rounds")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid():
        raise SystemExit("only root may sample all CPUs: run it as root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the disk is torn down
    rounds, seconds = (2, 3.0) if chosen.quick else (5, 5.0)
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-") as name, disk_in_memory() as disk, measuring():
        sides = {"storlab": storlab, "perf": perf}
        with busy(disk):
            found = [{side: run(Path(name), seconds) for side, run in sides.items()} for _ in range(rounds)]
    print(table(found))
    if chosen.json:
        chosen.json.write_text(json.dumps({"rounds": found, "load": os.getloadavg()}, indent=2) + "\n")


@contextmanager
def busy(disk: str) -> Iterator[None]:
    """All CPUs have something to do."""
    with subprocess.Popen(["fio", *fio(disk, _LONGEST)], stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(2)  # until it is under way
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def storlab(folder: Path, seconds: float) -> dict[str, float]:
    """CPU time while it samples and of the whole; nanoseconds for each sample."""
    argv = [str(agent_path()), "profile", "--frequency", _HERTZ]
    found, whole = sampled(argv, folder / "profile.jsonl", seconds, _programs)
    return {
        "sampling": (found["process"] + found["programs"]) / seconds,
        "whole": whole + found["programs"],
        "sample": found["programs"] * 1e9 / max(found["samples"], 1),
    }


def perf(folder: Path, seconds: float) -> dict[str, float]:
    """CPU time while it samples and of the whole."""
    data, kept = str(folder / "perf.data"), ["--buildid-dir", str(folder / "debug")]
    record = ["perf", *kept, "record", "-q", "-a", "-g", "-F", _HERTZ, "-e", "cpu-clock", "-o", data]
    found, whole = sampled(record, folder / "record.txt", seconds, lambda _: {})
    report = ["perf", *kept, "report", "-q", "-i", data, "--stdio", "--children", "-g", "caller"]
    with (folder / "report.txt").open("wb") as out, subprocess.Popen(report, stdout=out) as process:
        whole += cpu_until_its_end(process)
    return {"sampling": found["process"] / seconds, "whole": whole}


def sampled(
    argv: Sequence[str], output: Path, seconds: float, more: Callable[[int], dict[str, float]]
) -> tuple[dict[str, float], float]:
    """What grew in the measured seconds, and CPU seconds of the whole process."""
    with output.open("wb") as out, subprocess.Popen(argv, stdout=out) as process:
        try:
            time.sleep(_START)
            before = {"process": _cpu(process.pid), **more(process.pid)}
            time.sleep(seconds)
            after = {"process": _cpu(process.pid), **more(process.pid)}
            process.send_signal(signal.SIGINT)
            return {name: after[name] - value for name, value in before.items()}, cpu_until_its_end(process)
        finally:
            process.kill()  # what has ended is left alone


def cpu_until_its_end(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process that ends by itself."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, -signal.SIGINT):  # perf ends by the signal that it got
        raise SystemExit(f"{process.args!r} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _programs(pid: int) -> dict[str, float]:
    programs = programs_of(pid)
    return {"programs": sum(spent for _, spent in programs) / 1e9, "samples": sum(count for count, _ in programs)}


def _cpu(pid: int) -> float:
    """CPU seconds of all threads of a process so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """Sides, then ratios."""
    lines = [f"{'side':<18}{'while it samples':>18}{'range':>22}{'with names, s':>16}{'range':>18}"]
    for side in rounds[0]:
        share, whole = ([each[side][what] for each in rounds] for what in ("sampling", "whole"))
        lines.append(f"{side:<18}{_spread(share, '.3%', 18, 22)}{_spread(whole, '.2f', 16, 18)}")
    share, whole = ([each["storlab"][what] / each["perf"][what] for each in rounds] for what in ("sampling", "whole"))
    lines.append(f"{'storlab / perf':<18}{_spread(share, '.2f', 18, 22)}{_spread(whole, '.2f', 16, 18)}")
    sample = statistics.median(each["storlab"]["sample"] for each in rounds)
    return "\n".join([*lines, f"Storlab's eBPF program takes {sample:,.0f} ns a sample"])


def _spread(values: Sequence[float], form: str, width: int, of_range: int) -> str:
    span = f"{min(values):{form}} to {max(values):{form}}"
    return f"{statistics.median(values):>{width}{form}}{span:>{of_range}}"


if __name__ == "__main__":
    main()
