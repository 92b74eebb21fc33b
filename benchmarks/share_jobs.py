"""What the jobs of one set-up of a shared folder cost beyond fio's own time, beside a loop in the same guest's shell.

    uv run python -m benchmarks.share_jobs [--quick] [--script run-fio-test.sh] [--json FILE]

Both run the same jobs on a folder over virtiofs (`auto`), in a guest that was set up beforehand: once each, with `sync`
and dropped caches before each one. The loop does what virtiofs-tests' run-fio-test.sh does, or is that script
(https://github.com/rhvgoyal/virtiofs-tests), where its path is given. Storlab also drops this machine's caches,
compares clocks, counts requests, watches machine and processes, keeps and parses raw output, and writes tables.

A job lasts from its beginning to that of the next. Overhead is what remains of it without fio's own process, from its
start to its end; in the loop, a program of fio's name notes both. The first job lays out the file and is left out.
What Storlab takes for caches alone, the guest's and this machine's, is shown as well: the loop drops the guest's.
Rounds of both sides alternate; a ratio is the median over pairs of neighbours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

from storlab.records.run_folder import RunFolder, TrialRecord
from storlab.run.executor import run_study
from storlab.run.observer import Observer
from storlab.run.permissions import Permissions
from storlab.study.study import load_study

HEAD = """
schema = 1
title = "Jobs on a shared folder"
scratch = "{folder}"
primary = "{primary}"
compare = []
repeat = {{ until = "max", min = 1, max = 1 }}
[nodes.vm]
kind = "vm"
memory = "512M"
keep = "round"
stack = [{{ layer = "directory" }}, {{ layer = "virtiofsd" }}, {{ layer = "virtiofs", queue_size = 1024 }}]
"""

OURS = """
[factors]
rw.levels = {patterns}
ioengine.levels = {engines}
[workload.job]
on = "vm"
fio = {{ rw = "{{rw}}", ioengine = "{{ioengine}}", bs = "4k", size = "{size}", iodepth = 16, runtime = "{runtime}s" }}
[probes]
host-load = {{}}
processes = {{}}
share-requests = {{}}
"""

THEIRS = """
[workload.loop]
on = "vm"
command = {{ argv = ["bash", "-c", '''{script}''', "loop", "{{target}}"] }}
"""

LOOP = r"""
drop_cache() { sync; echo 3 > /proc/sys/vm/drop_caches; }
drop_cache
for job in $JOBS; do
    drop_cache
    options="--runtime=$RUNTIME --iodepth=16 --size=$SIZE --direct=0 --blocksize=4k --append-terse"
    fio --directory="$TESTDIR" $options $job
done
drop_cache
"""

# Job files, and a fio that notes when it began and ended; then the loop, or the script.
AROUND = r"""
set -eu
cd "$(mktemp -d)"
export TESTDIR="$1" RUNTIME={runtime} SIZE={size} JOBS=""
for rw in {patterns}; do for engine in {engines}; do
    printf "[global]\nname=fio\nfilename=fio-file1\nrw=%s\nioengine=%s\n[job]\n" $rw $engine > $rw-$engine.job
    JOBS="$JOBS $PWD/$rw-$engine.job"
done; done
mkdir bin times
cat > bin/fio <<END
#!/bin/bash
began=\$EPOCHREALTIME
/usr/bin/fio "\$@"
echo "\$began \$EPOCHREALTIME" >> $PWD/times/all
END
chmod 755 bin/fio
export PATH="$PWD/bin:$PATH"
cat > loop.sh <<"END_OF_LOOP"
{loop}
END_OF_LOOP
{start} > jobs.log
cat times/all
"""
_OWN = "bash loop.sh"
_SCRIPT = "bash loop.sh --loops 1 --runtime $RUNTIME --size $SIZE --direct 0 --blocksize 4k name $TESTDIR $JOBS"


def main() -> None:
    """Run both sides and print the medians."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="four jobs, two rounds")
    options.add_argument("--script", type=Path, help="a run-fio-test.sh of virtiofs-tests, rather than its like")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("share_jobs needs root: it drops caches")
    patterns = ("randread", "randwrite") if chosen.quick else ("read", "randread", "write", "randwrite", "randrw")
    engines = ("psync", "mmap") if chosen.quick else ("psync", "mmap", "libaio")
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as made:  # short, for sockets
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        jobs = Jobs(Path(made), patterns, engines, chosen.script)
        rounds = [jobs.both(number) for number in range(2 if chosen.quick else 5)]
    said = figures(rounds, jobs.settled)
    for name, value in said.items():
        print(f"{name:28} {value}")
    if chosen.json:
        chosen.json.write_text(json.dumps(said, indent=2) + "\n")


class Jobs:
    """The same jobs on both sides; a folder for each run."""

    def __init__(self, folder: Path, patterns: tuple[str, ...], engines: tuple[str, ...], script: Path | None) -> None:
        self.folder, self.patterns, self.engines, self.script = folder, patterns, engines, script
        self.words = {"size": "16M", "runtime": "1"}
        self.settled: list[float] = []  # seconds that Storlab took for caches, by job

    def both(self, number: int) -> tuple[list[float], list[float]]:
        """Overheads in seconds: Storlab's, and the loop's. Which is first changes from round to round."""
        sides = [self.ours, self.theirs]
        found = {side.__name__: side(number) for side in (sides if number % 2 else sides[::-1])}
        return found["ours"], found["theirs"]

    def ours(self, number: int) -> list[float]:
        """Of each trial but the first."""
        words = {"patterns": json.dumps(self.patterns), "engines": json.dumps(self.engines), **self.words}
        run = self._run(f"ours-{number}", "iops", OURS.format(**words))
        records = sorted(run.records(), key=lambda record: record.trial)
        self.settled += [record.phases["settle"] for record in records[1:]]
        return [_overhead(run, *each) for each in pairwise(records)][1:]

    def theirs(self, number: int) -> list[float]:
        """Of each job but the first, and but the last, after which no other begins."""
        words = {"patterns": " ".join(self.patterns), "engines": " ".join(self.engines), **self.words}
        loop, start = (LOOP, _OWN) if self.script is None else (self.script.read_text(), _SCRIPT)
        text = AROUND
        for name, value in {**words, "loop": loop, "start": start}.items():
            text = text.replace(f"{{{name}}}", value)
        quoted = json.dumps(text.replace("{target}", "{{target}}"))
        run = self._run(f"theirs-{number}", "elapsed", THEIRS.format(script="@").replace("'''@'''", quoted))
        (record,) = run.records()
        output = (run.trial_folder(record.trial) / "vm" / "loop" / "stdout").read_text()
        times = [[float(time) for time in line.split()] for line in re.findall(r"(?m)^[\d.]+ [\d.]+$", output)]
        return [after[0] - ended for (_, ended), after in pairwise(times)][1:]

    def _run(self, name: str, primary: str, rest: str) -> RunFolder:
        folder = self.folder / name
        folder.mkdir()
        (folder / "study.toml").write_text(HEAD.format(folder=folder, primary=primary) + rest)
        study = load_study(folder / "study.toml")
        allowed = Permissions(given=frozenset({str(folder)}))
        outcome = asyncio.run(run_study(study, folder / "out", 1, (1, 1), Observer(), allowed))
        failed = [record.reason for record in outcome.tables.records if record.status != "done"]
        if failed:
            raise SystemExit(f"a trial failed: {failed[0]}")
        return RunFolder.open(folder / "out")


def _overhead(run: RunFolder, record: TrialRecord, after: TrialRecord) -> float:
    assert record.started and after.started
    fio = json.loads((run.trial_folder(record.trial) / "vm" / "job" / "exit.json").read_text())["elapsed"]
    return (after.started - record.started).total_seconds() - float(fio)


def figures(rounds: list[tuple[list[float], list[float]]], settled: list[float]) -> dict[str, object]:
    """Medians over all jobs, and the ratio round by round."""
    ratios = [statistics.median(ours) / statistics.median(theirs) for ours, theirs in rounds]
    sides = {"storlab": [each for ours, _ in rounds for each in ours], "loop": [each for _, t in rounds for each in t]}
    return {
        **{f"{side}, s a job beyond fio": round(statistics.median(each), 3) for side, each in sides.items()},
        "of Storlab's, for caches, s": round(statistics.median(settled), 3),
        "storlab / loop": round(statistics.median(ratios), 2),
        "rounds": [round(ratio, 2) for ratio in ratios],
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    main()
