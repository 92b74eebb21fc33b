"""What a trial costs beyond its load: Storlab beside the loop that one would write in a shell.

    uv run python -m benchmarks.trial_overhead [--quick] [--json FILE]

Both run fio with one and the same job (4k random writes, one second, the logs and json+ that Storlab keeps), on a
sparse file, loop device, ext4 and mount of their own, with `sync` and dropped caches before each. Two ways:

``kept``: file, loop, file system and mount stay up between trials, and so do fio's files. The shell's loop is
`sync; echo 3 > drop_caches; fio`.

``fresh``: everything is set up for each trial and torn down after it. Storlab lays out the files before it settles, so
that the measured run writes to files that exist; the shell lets the measured run do both.

Storlab also records facts of every layer, compares clocks, starts by an agreed instant, watches the machine and the
disk (the default probes), keeps raw output, parses it, journals what it sets up and writes tables after each round.
A trial lasts from its beginning to that of the next, so all of that counts. Overhead is what remains of it without
fio's own process, from its start to its end: on either side, fio takes a few tenths of a second more than its runtime.
Blocks of trials of both sides alternate; a ratio is the median over pairs of neighbours, with its range.

What a trial asks the agent for is counted, too: requests, of which each costs a machine over SSH a round trip, and
programs that are started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from storlab.nodes.agent.connection import Connection
from storlab.nodes.agent.protocol import Answer
from storlab.records.run_folder import TrialRecord
from storlab.run.executor import run_study
from storlab.run.observer import Observer
from storlab.run.permissions import Permissions
from storlab.run.planning.order import PlannedTrial
from storlab.study.cells import Cell
from storlab.study.study import load_study

STUDY = """
schema = 1
title = "Overhead of a trial"
scratch = "{scratch}"
primary = "bandwidth"
stack = [
  {{ layer = "file", size = "256M" }}, {{ layer = "loop" }}, {{ layer = "mkfs", type = "ext4" }}, {{ layer = "mount" }}
]
repeat = {{ until = "max", min = {trials}, max = {trials} }}
nodes = {{ host = {{ keep = "{keep}" }} }}
[workload.load]
fio = {{ rw = "randwrite", bs = "4k", ioengine = "psync", size = "64M", runtime = "1s", time_based = true }}
"""

SHELL = """
set -eu
up() {
    truncate --size 256M file.img
    disk=$(losetup --find --show --sector-size=512 --direct-io=on file.img)
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
    mkdir -p mnt; mount -t ext4 "$disk" mnt
}
down() { umount mnt; losetup --detach "$disk"; rm file.img; }
[ "$1" = fresh ] || { up; fio --create_only=1 job.fio >/dev/null; }
for i in $(seq "$2"); do
    began=$EPOCHREALTIME
    [ "$1" = kept ] || up
    sync; echo 3 > /proc/sys/vm/drop_caches
    from=$EPOCHREALTIME
    (mkdir "raw-$i"; cd "raw-$i"; exec fio --output-format=json+ --output=fio.json ../job.fio)
    to=$EPOCHREALTIME
    [ "$1" = kept ] || down
    echo "$began $from $to $EPOCHREALTIME"
done
[ "$1" = fresh ] || down
"""


@dataclass(frozen=True)
class Trial:
    """Seconds of a trial as a whole, and of fio's process in it."""

    whole: float
    load: float
    requests: int = 0  # to the agent
    programs: int = 0  # that it was asked to start

    @property
    def overhead(self) -> float:
        """Beyond the load's own time."""
        return self.whole - self.load


def main() -> None:
    """Run both ways and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="fewer trials")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("trial_overhead needs root: it sets up loop devices and drops caches")
    blocks, trials = (2, 4) if chosen.quick else (6, 8)
    found = {way: compare(way, blocks, trials) for way in ("kept", "fresh")}
    print(table(found))
    if chosen.json:
        chosen.json.write_text(json.dumps({way: figures(pairs) for way, pairs in found.items()}, indent=2) + "\n")


def compare(way: str, blocks: int, trials: int) -> list[tuple[list[Trial], list[Trial]]]:
    """Blocks of Storlab's trials and of the shell's, in turn, first one ahead, then the other."""
    pairs = []
    with tempfile.TemporaryDirectory(prefix="storlab-benchmark-", dir="/var/tmp") as made:
        job = storlab(Path(made) / "warm-up", way, 2)[1]  # its job file is the shell's
        for at in range(blocks):
            folder = Path(made) / str(at)
            if at % 2:
                theirs = shell(folder / "shell", way, trials, job)
                ours = storlab(folder / "storlab", way, trials)[0]
            else:
                ours = storlab(folder / "storlab", way, trials)[0]
                theirs = shell(folder / "shell", way, trials, job)
            pairs.append((ours, theirs))
    return pairs


def storlab(folder: Path, way: str, trials: int) -> tuple[list[Trial], str]:
    """Trials of one run, and the job file that fio was given. The first one, which sets everything up, is left out."""
    folder.mkdir(parents=True)
    (folder / "state").mkdir()
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    keep = "run" if way == "kept" else "trial"
    (folder / "study.toml").write_text(STUDY.format(scratch=folder, trials=trials + 2, keep=keep))
    study = load_study(folder / "study.toml")
    asked = Asked()
    with asked.counting():
        outcome = asyncio.run(
            run_study(
                study, folder / "out", 1, (trials + 2, trials + 2), asked, Permissions(given=frozenset({str(folder)}))
            )
        )
    failed = [record.reason for record in outcome.tables.records if record.status != "done"]
    if failed:
        raise SystemExit(f"a trial failed: {failed[0]}")
    job = (folder / "out" / "trials" / "0001" / "host" / "load" / "job.fio").read_text()
    measured = [_trial(*each) for each in zip(pairwise(outcome.tables.records[1:]), asked.trials[1:], strict=False)]
    shutil.rmtree(folder)
    return measured, job


class Asked(Observer):
    """Counts what agents are asked for in each trial: requests and programs."""

    def __init__(self) -> None:
        self.trials: list[tuple[int, int]] = []
        self._requests = self._programs = 0

    def trial_begins(self, planned: PlannedTrial, cell: Cell, left: tuple[float, float] | None) -> None:
        self._requests = self._programs = 0

    def trial_ends(self, record: TrialRecord) -> None:
        self.trials.append((self._requests, self._programs))

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count from here on."""
        real = Connection.request

        def request(connection: Connection, op: str, *more: Any, **fields: Any) -> AsyncGenerator[Answer, None]:
            self._requests += 1
            self._programs += (op == "run") + sum(step["do"] == "run" for step in fields.get("steps", ()))
            return real(connection, op, *more, **fields)

        with mock.patch.object(Connection, "request", request):
            yield


def _trial(records: tuple[TrialRecord, TrialRecord], asked: tuple[int, int]) -> Trial:
    record, after = records
    assert record.started and after.started
    return Trial((after.started - record.started).total_seconds(), record.measured or 0.0, *asked)


def shell(folder: Path, way: str, trials: int, job: str) -> list[Trial]:
    """The loop, in a shell."""
    folder.mkdir(parents=True)
    (folder / "job.fio").write_text(re.sub(r"(?m)^directory=.*$", f"directory={folder}/mnt", job))
    argv = ["bash", "-c", SHELL, "loop", way, str(trials)]
    said = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, check=True, text=True).stdout
    times = [[float(time) for time in line.split()] for line in said.splitlines()]
    shutil.rmtree(folder)
    return [Trial(end - began, to - since) for began, since, to, end in times]


def figures(pairs: list[tuple[list[Trial], list[Trial]]]) -> dict[str, object]:
    """Medians of each side; the ratio of whole trials and the difference of overheads, block by block."""
    ratios = [_median(ours, "whole") / _median(theirs, "whole") for ours, theirs in pairs]
    more = [_median(ours, "overhead") - _median(theirs, "overhead") for ours, theirs in pairs]
    sides = {"storlab": [t for ours, _ in pairs for t in ours], "shell": [t for _, theirs in pairs for t in theirs]}
    return {
        **{side: {name: _median(of, name) for name in ("whole", "load", "overhead")} for side, of in sides.items()},
        "asked": {name: _median(sides["storlab"], name) for name in ("requests", "programs")},
        "overhead ratio": _spread([_median(o, "overhead") / _median(t, "overhead") for o, t in pairs]),
        "times as long": _spread(ratios),
        "seconds more": _spread(more),
        "trials": {side: [asdict(trial) for trial in of] for side, of in sides.items()},
    }


def _median(trials: list[Trial], name: str) -> float:
    return float(statistics.median(getattr(trial, name) for trial in trials))


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def table(found: dict[str, list[tuple[list[Trial], list[Trial]]]]) -> str:
    """For people."""
    lines = [f"{'stacks':8} {'side':8} {'trial s':>8} {'fio s':>8} {'overhead s':>11}"]
    for way, pairs in found.items():
        said = figures(pairs)
        for side in ("storlab", "shell"):
            medians = said[side]
            assert isinstance(medians, dict)
            lines.append(f"{way:8} {side:8} {medians['whole']:8.3f} {medians['load']:8.3f} {medians['overhead']:11.3f}")
        asked = said["asked"]
        assert isinstance(asked, dict)
        lines.append(
            f"{'':8} requests to the agent: {asked['requests']:.0f}, programs started: {asked['programs']:.0f}"
        )
        for name in ("times as long", "seconds more", "overhead ratio"):
            spread = said[name]
            assert isinstance(spread, dict)
            lines.append(f"{'':8} {name}: {spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
