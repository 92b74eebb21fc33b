"""Write off.txt and on.txt, as sysbench would print them of two runs of three hours. `python sysbench_pair.py`

Made up, to try the commands on. "on" is 1 % faster at first, falls by 3 % after two hours, and stalls once for 8 s.
"""

import random
from pathlib import Path

LINE = (
    "[ {t}s ] thds: 64 tps: {tps:.2f} qps: {qps:.2f} (r/w/o: {r:.2f}/{w:.2f}/{o:.2f}) "
    "lat (ms,95%): 17.32 err/s: 0.00 reconn/s: 0.00\n"
)
CLOSING = """SQL statistics:
    transactions:                        {total:.0f} ({rate:.2f} per sec.)

General statistics:
    total time:                          {seconds:.4f}s
    total number of events:              {total:.0f}

Latency (ms):
         min:                                    3.10
         avg:                                   12.07
         max:                                  214.33
         95th percentile:                       17.32
         sum:                            691160000.00

Threads fairness:
    events (avg/stddev):           {each:.4f}/1034.11
    execution time (avg/stddev):   10799.3750/0.02

"""
SECONDS, INTERVAL = 3 * 3600, 2


def tps_of(name: str, t: int, drawn: random.Random) -> float:
    """Transactions a second in the interval that ends at ``t`` s."""
    if name == "off":
        return drawn.gauss(5300, 45)
    if 5000 < t <= 5008:
        return 0.0
    return drawn.gauss(5353 if t <= 7200 else 5194, 60)


for name in ("off", "on"):
    drawn = random.Random(name)
    lines = ["sysbench 1.0.20 (using bundled LuaJIT 2.1.0-beta2)\n\nNumber of threads: 64\n\nThreads started!\n\n"]
    total = 0.0
    for t in range(INTERVAL, SECONDS + 1, INTERVAL):
        tps = tps_of(name, t, drawn)
        total += INTERVAL * tps
        lines.append(LINE.format(t=t, tps=tps, qps=20 * tps, r=14 * tps, w=4 * tps, o=2 * tps))
    lines.append(CLOSING.format(total=total, rate=total / SECONDS, seconds=SECONDS, each=total / 64))
    Path(f"{name}.txt").write_text("".join(lines))
