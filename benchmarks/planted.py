"""How long does it take to find a difference of 20 % among nine comparisons?

    sudo python -m benchmarks.planted [--before CHECKOUT] [--turns 1] [--json FILE]

Requests of 5k and of 6k, under nine loads each: as many requests a second, so a fifth more bytes. Wall time of
`storlab run` until it has decided all nine, with whole trials, in slices, and in slices on stacks that are kept for
the run. ``--before`` is a checkout of another version with its environment in .venv and its agent built: it runs the
whole trials, too. All take turns; a ratio is to the first that is run, and a run that did not decide all counts as if
it had when it ended, which is in the others' disfavour at most where it is the first.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 1.0
LOADS = {
    f"{rw}-{depth}": f'rw = "{rw}", iodepth = {depth}'
    for rw in ("randread", "randwrite", "read")
    for depth in (1, 4, 8)
}
DISK = '{ layer = "file", size = "256M", allocate = "preallocated" }, { layer = "loop" }'


def main() -> None:
    """Run them and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="three loads")
    options.add_argument("--before", type=Path, help="a checkout of another version, for its whole trials")
    options.add_argument("--turns", type=int, default=1)
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    loads = dict(list(LOADS.items())[: 3 if chosen.quick else len(LOADS)])
    here = [sys.executable, "-m", "storlab.cli.main"]
    ways: dict[str, tuple[list[str], str]] = {}
    if chosen.before is not None:
        ways["before, whole trials"] = ([str(chosen.before / ".venv" / "bin" / "storlab")], _study(loads, "", ""))
    ways["whole trials"] = (here, _study(loads, "", ""))
    ways["slices"] = (here, _study(loads, 'trial = { slices = "0.1s" }', ""))
    ways["slices, kept"] = (here, _study(loads, 'trial = { slices = "0.1s" }', 'nodes = { host = { keep = "run" } }'))
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="storlab-bench-") as folder:
        for turn in range(chosen.turns):
            for way, (command, study) in ways.items():
                found[way].append(_run(command, study, Path(folder) / f"{way.replace(' ', '-')}-{turn}"))
                print(f"{way}: {found[way][-1]}", flush=True)
    print(_table(found))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2))


def _study(loads: dict[str, str], trial: str, nodes: str) -> str:
    common = (
        f'bs = "{{size}}", ioengine = "libaio", direct = 1, size = "60M", runtime = "{SECONDS}s", time_based = true'
    )
    workloads = "\n".join(f"[workload.{name}]\nfio = {{ {options}, {common} }}" for name, options in loads.items())
    trial = trial.replace("{ ", '{ workloads = ["{load}"], ') or 'trial = { workloads = ["{load}"] }'
    return f"""
schema = 1
title = "A fifth more bytes"
primary = "bandwidth"
stack = [{DISK}]
repeat = {{ until = "decided", min = 6, max = 40 }}
factors.size.levels = ["5k", "6k"]
factors.load.levels = {json.dumps(list(loads))}
compare = [{{ factor = "size", metrics = ["bandwidth"] }}]
{trial}
{nodes}
probes = {{}}
{workloads}
"""


def _run(command: Sequence[str], text: str, out: Path) -> dict[str, Any]:
    study = out.with_suffix(".toml")
    study.write_text(text)
    began = time.monotonic()
    ended = subprocess.run(
        [*command, "run", str(study), "--out", str(out)], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if ended.returncode not in (0, 1):
        raise SystemExit(f"status {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    summary = json.loads((out / "summary.json").read_text())
    verdicts = [each["verdict"] for each in summary["comparisons"]]
    trials = sum(1 for _ in (out / "trials").iterdir())
    return {
        "seconds": round(seconds, 1),
        "trials": trials,
        "verdicts": {kind: verdicts.count(kind) for kind in set(verdicts)},
    }


def _table(found: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| way | seconds | trials | ratio | verdicts of the last |", "| --- | --- | --- | --- | --- |"]
    first = next(iter(found.values()))
    for way, runs in found.items():
        pairs = zip(runs, first, strict=True)
        ratio = math.exp(statistics.fmean(math.log(each["seconds"] / base["seconds"]) for each, base in pairs))
        seconds, trials = (statistics.median(each[key] for each in runs) for key in ("seconds", "trials"))
        lines.append(f"| {way} | {seconds:.0f} | {trials:.0f} | {ratio:.2f} | {runs[-1]['verdicts']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
