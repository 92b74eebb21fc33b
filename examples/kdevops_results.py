"""Write kdevops/workflows/sysbench/results, as kdevops' sysbench workflow would leave it. `python kdevops_results.py`

Made up, to try the commands on: two file systems, each with MySQL's doublewrite on one host and without it on another.
"""

import random
from pathlib import Path

RESULTS = Path("kdevops/workflows/sysbench/results")
HEAD = "sysbench 1.0.20 (using bundled LuaJIT 2.1.0-beta2)\n\nNumber of threads: 512\n\nThreads started!\n\n"
LINE = (
    "[ {t}s ] thds: 512 tps: {tps:.2f} qps: {qps:.2f} (r/w/o: {r:.2f}/{w:.2f}/{o:.2f}) "
    "lat (ms,95%): 120.30 err/s: 0.00 reconn/s: 0.00\n"
)
CLOSING = """SQL statistics:
    queries performed:
        read:                            {r}
        write:                           {w}
        other:                           {o}
        total:                           {all}
    transactions:                        {events} ({tps:.2f} per sec.)
    queries:                             {all} ({qps:.2f} per sec.)
    ignored errors:                      0      (0.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          {seconds:.4f}s
    total number of events:              {events}

Latency (ms):
         min:                                   10.10
         avg:                             {average:11.2f}
         max:                                  514.33
         95th percentile:                      120.30
         sum:                             {busy:11.2f}

Threads fairness:
    events (avg/stddev):           {each:.4f}/34.11
    execution time (avg/stddev):   {seconds:.4f}/0.00

"""
SECONDS, INTERVAL, THREADS = 600, 2, 512
SIGMA = {"kdevops-xfs-reflink-16k": 190, "kdevops-ext4-4k-bigalloc-16k": 180}  # of the host with doublewrite


def closing(events: int) -> str:
    """What sysbench ends with, after so many transactions."""
    busy = 1000 * SECONDS * THREADS
    queries = {"r": 14 * events, "w": 4 * events, "o": 2 * events, "all": 20 * events, "qps": 20 * events / SECONDS}
    return CLOSING.format(
        events=events,
        tps=events / SECONDS,
        seconds=SECONDS,
        average=busy / events,
        busy=busy,
        each=events / THREADS,
        **queries,
    )


RESULTS.mkdir(parents=True, exist_ok=True)
(RESULTS / "last-kernel.txt").write_text("6.12.0\n")
for baseline, sigma in SIGMA.items():
    for host, doublewrite, spread in ((baseline, 1, sigma), (f"{baseline}-dev", 0, sigma / 2)):
        drawn, total = random.Random(host), 0.0
        lines = [HEAD]
        for t in range(INTERVAL, SECONDS + 1, INTERVAL):
            tps = drawn.gauss(5200, spread)
            total += INTERVAL * tps
            lines.append(LINE.format(t=t, tps=tps, qps=20 * tps, r=14 * tps, w=4 * tps, o=2 * tps))
        lines.append(closing(round(total)))
        (RESULTS / host).mkdir(exist_ok=True)
        (RESULTS / host / "sysbench_tps.txt").write_text("".join(lines))
        (RESULTS / host / "innodb_doublewrite.txt").write_text(f"{doublewrite}\n")
        (RESULTS / host / "innodb_page_size.txt").write_text("16384\n")
        (RESULTS / host / "dmesg.txt").write_text(f"Nov 28 12:00:00 {host} kernel: Linux version 6.12.0 (made up)\n")
