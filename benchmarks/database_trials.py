"""What a trial of a database costs beyond its load: from a clone, loading its tables anew, and by a shell script.

    uv run python -m benchmarks.database_trials [--quick] [--json FILE]

Each trial sets up a sparse file, loop device, ext4, mount and MariaDB with 4 × 50,000 rows, runs sysbench for two
seconds at 50 transactions a second, stops the server in order, and tears all of it down:

``clone``: Storlab, whose data set was made before and is unpacked for each trial; ``anew``: Storlab without a data
set of tables, which sysbench loads in each trial; ``shell``: the steps of ``clone`` in a script, from the same archive.

Storlab also records facts of every layer, reads the server's settings back, watches with its default probes, keeps raw
output, parses it, and journals. A trial lasts from its beginning to that of the next. Overhead in seconds is what
remains of it without sysbench's measured process. CPU time is that of all processes of a run, divided by its trials:
Storlab's has a share of its start and end, and each has the load, which is the same few transactions for all sides.
Sides take turns; a ratio is the median over turns, with its range.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pwd
import resource
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from storlab.layers.database.data_set import ARCHIVE
from storlab.layers.database.innodb import MariadbLayer
from storlab.run.executor import run_study
from storlab.run.observer import Observer
from storlab.run.permissions import Permissions
from storlab.study.study import load_study

TABLES, ROWS, SECONDS, RATE = 4, 50_000, 2, 50
STUDY = """
schema = 1
title = "Overhead of a trial of a database"
scratch = "{scratch}"
primary = "tps"
stack = [
  {{ layer = "file", size = "900M" }}, {{ layer = "loop" }}, {{ layer = "mkfs", type = "ext4" }},
  {{ layer = "mount" }}, {{ layer = "mariadb", pool = "64M"{data} }},
]
repeat = {{ until = "max", min = {trials}, max = {trials} }}
[workload.load]
sysbench = {{ threads = 2, rate = {rate}, runtime = "{seconds}s", test = "oltp_update_non_index"{tables} }}
"""
# The steps of ``clone``, in their order; the server's settings are those that the layer writes into its file.
SHELL = """
set -eu
archive=$1 user=$6 group=$(id --group --name "$6")
as_user() { exec setpriv --reuid="$user" --regid="$group" --init-groups "$@"; }
disk=
trap '[ -z "$disk" ] || { kill -KILL $! || true; umount mnt || true; losetup --detach "$disk"; }' EXIT
load() {
    sysbench oltp_update_non_index --rate=$7 --db-driver=mysql --mysql-user=storlab --mysql-db=storlab \
        --mysql-socket="$PWD/run/s" --tables=$3 --table-size=$4 --threads=2 --time=$5 --events=0 \
        --report-interval=1 --histogram=on run
}
client() { mariadb --no-defaults --batch --skip-column-names --socket="$PWD/run/s" --user=storlab -e "$1"; }
for i in $(seq "$2"); do
    began=$EPOCHREALTIME
    truncate --size 900M file.img
    disk=$(losetup --find --show --sector-size=512 --direct-io=on file.img)
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
    mkdir -p mnt run; mount -t ext4 "$disk" mnt
    install -d -o "$user" -g "$group" -m 700 mnt/data; chown "$user" run
    (as_user tar --extract --directory=mnt/data < "$archive")
    sync --file-system mnt/data
    as_user mariadbd --no-defaults --datadir="$PWD/mnt/data" \
        --socket="$PWD/run/s" --pid-file="$PWD/run/pid" --tmpdir="$PWD/run" --skip-networking \
        --innodb-buffer-pool-size=64M --innodb-log-file-size=96M --innodb-flush-method=O_DIRECT \
        --innodb-buffer-pool-dump-at-shutdown=OFF --innodb-buffer-pool-load-at-startup=OFF > "log-$i" 2>&1 &
    until client "SELECT 1" > /dev/null 2>&1; do sleep 0.02; done
    client "SHOW GLOBAL VARIABLES" > "variables-$i"
    sync; echo 3 > /proc/sys/vm/drop_caches
    client "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SET GLOBAL innodb_max_dirty_pages_pct = 0"
    until client "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'" | grep -q "[^0-9]0$"; do sleep 0.05; done
    client "SET GLOBAL innodb_max_dirty_pages_pct = 90"
    from=$EPOCHREALTIME
    load "$@" > "raw-$i"
    to=$EPOCHREALTIME
    kill -TERM $!; wait $!
    umount mnt; losetup --detach "$disk"; disk=; rm -r file.img run
    echo "$began $from $to $EPOCHREALTIME"
done
"""


@dataclass(frozen=True)
class Cost:
    """Of one trial, the median of a turn: seconds of overhead, and CPU seconds."""

    wall: float
    cpu: float


def main() -> None:
    """Run the sides in turns and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="two turns of two trials")
    options.add_argument("--json", type=Path, help="write the figures there too")
    chosen = options.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("database_trials needs root: it sets up loop devices and drops caches")
    turns, trials = (2, 2) if chosen.quick else (5, 4)
    began = os.getloadavg()[0]
    found = compare(turns, trials)
    loads = [began, os.getloadavg()[0]]
    print(table(found))
    print(f"load average: {loads[0]:.1f} at the beginning, {loads[1]:.1f} at the end")
    if chosen.json:
        costs = {side: [asdict(cost) for cost in costs] for side, costs in found.items()}
        chosen.json.write_text(json.dumps({"turns": costs, "load average": loads}, indent=2) + "\n")


def compare(turns: int, trials: int) -> dict[str, list[Cost]]:
    """Side → its cost in each turn."""
    found: dict[str, list[Cost]] = {"clone": [], "anew": [], "shell": []}
    with tempfile.TemporaryDirectory(prefix="sl-benchmark-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o711)  # the server's own user passes through it
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        for side in ("clone", "anew"):  # their data sets are made
            storlab(folder / f"warm-up-{side}", side, 1)
        archive = max((folder / "cache").glob(f"**/{ARCHIVE}"), key=lambda each: each.stat().st_size)
        for turn in range(turns):
            for side in list(found) if turn % 2 else reversed(found):
                at = folder / f"{side}-{turn}"
                found[side].append(shell(at, archive, trials) if side == "shell" else storlab(at, side, trials))
    return found


def storlab(folder: Path, side: str, trials: int) -> Cost:
    """A run. Its first trial is left out, and the last, after which no other begins."""
    folder.mkdir()
    folder.chmod(0o711)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    tables = f", tables = {TABLES}, rows = {ROWS}"
    data, own = (f", data = {{ {tables[2:]} }}", "") if side == "clone" else ("", tables)
    filled = {"data": data, "tables": own, "trials": trials + 2, "seconds": SECONDS, "rate": RATE}
    (folder / "study.toml").write_text(STUDY.format(scratch=folder, **filled))
    study = load_study(folder / "study.toml")
    before = cpu_seconds()
    outcome = asyncio.run(
        run_study(
            study, folder / "out", 1, (trials + 2, trials + 2), Observer(), Permissions(given=frozenset({str(folder)}))
        )
    )
    took = cpu_seconds() - before
    records = outcome.tables.records
    if failed := [record.reason for record in records if record.status != "done"]:
        raise SystemExit(f"a trial failed: {failed[0]}")
    wall = []
    for record, after in pairwise(records[1:]):
        assert record.started and after.started
        wall.append((after.started - record.started).total_seconds() - (record.measured or 0.0))
    shutil.rmtree(folder)
    return Cost(statistics.median(wall), took / len(records))


def shell(folder: Path, archive: Path, trials: int) -> Cost:
    """The script."""
    folder.mkdir()
    folder.chmod(0o711)
    argv = ["bash", "-c", SHELL, "script", str(archive), *map(str, (trials, TABLES, ROWS, SECONDS)), user(), str(RATE)]
    before = cpu_seconds()
    said = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, check=True, text=True).stdout
    took = cpu_seconds() - before
    times = [[float(time) for time in line.split()] for line in said.splitlines()]
    shutil.rmtree(folder)
    return Cost(statistics.median(end - began - (to - since) for began, since, to, end in times), took / trials)


def cpu_seconds() -> float:
    """Of this process and all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def user() -> str:
    """The one that the layer takes."""
    known = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in MariadbLayer.users if name in known)


def table(found: dict[str, list[Cost]]) -> str:
    """For people: the costs, and the ratios of ``clone`` to the others, turn by turn."""
    rows = {f"{side}, s beyond sysbench": [cost.wall for cost in costs] for side, costs in found.items()}
    rows |= {f"{side}, CPU s": [cost.cpu for cost in costs] for side, costs in found.items()}
    for side in ("anew", "shell"):
        pairs = list(zip(found["clone"], found[side], strict=True))
        rows[f"clone / {side}, s"] = [ours.wall / theirs.wall for ours, theirs in pairs]
        rows[f"clone / {side}, CPU"] = [ours.cpu / theirs.cpu for ours, theirs in pairs]
    lines = [f"{'':26} {'median':>8} {'least':>8} {'most':>8}"]
    for name, values in rows.items():
        lines.append(f"{name:26} {statistics.median(values):8.2f} {min(values):8.2f} {max(values):8.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
