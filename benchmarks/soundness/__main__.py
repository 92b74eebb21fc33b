"""Shows whether Storlab's verdicts are sound: ``python -m benchmarks.soundness [--quick] [--page]``.

Prints its tables, and writes all figures to ``benchmarks/results/soundness.json``. ``--page`` writes the page
``docs/explanation/soundness.md`` and its chart again. Exit status 1 where a bound is broken. All random choices come
from ``SEED``; each part has its own stream, so parts do not move each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.__main__ import machine
from benchmarks.soundness import aims, families, limits, mysql, noise, schedule, series, trials
from benchmarks.soundness.page import Results, broken, page, write_page

SEED = 20_261_121
EFFECTS = (0.01, 0.03, 0.05, 0.10, 0.20)
COVERED = (0.0, 0.05, 0.20)
RESULTS = Path(__file__).resolve().parent.parent / "results" / "soundness.json"


def main() -> int:
    """Run everything; the status is 1 where a bound is broken."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.soundness", description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="a twentieth of the studies")
    options.add_argument("--page", action="store_true", help="write docs/explanation/soundness.md and its chart")
    chosen = options.parse_args()
    if chosen.quick and chosen.page:
        options.error("--page writes what a whole run gave; leave out --quick")
    started = time.monotonic()
    found = run(20 if chosen.quick else 1)
    print(page(found))
    RESULTS.parent.mkdir(exist_ok=True)
    figures = {"machine": machine(), "seed": SEED, "quick": chosen.quick, **asdict(found)}
    RESULTS.write_text(json.dumps(figures, indent=2, default=float) + "\n", "utf-8")
    if chosen.page:
        write_page(found)
    print(f"{time.monotonic() - started:.0f} s; all figures: {RESULTS}", file=sys.stderr)
    for what in broken(found):
        print(f"BROKEN: {what}", file=sys.stderr)
    return bool(broken(found))


def run(divisor: int) -> Results:
    """All figures, with 1/``divisor`` of the studies."""
    many, some, few = 10_000 // divisor, 3_000 // divisor, 1_000 // divisor
    alarmed, together = max(10, 300 // divisor), max(50, 1_000 // divisor)
    return Results(
        seed=SEED,
        studies=many,
        covered_studies=some,
        power_studies=few,
        false_verdicts=[trials.false_verdicts(kind, many, _rng("false", kind)) for kind in noise.KINDS],
        false_equivalence={kind: trials.false_equivalence(kind, some, _rng("eq", kind)) for kind in noise.KINDS},
        coverage={
            kind: {str(e): trials.coverage(kind, e, some, _rng("cover", kind, e)) for e in COVERED}
            for kind in noise.KINDS
        },
        family_studies=together,
        families=[families.family(each, together, _rng("families", each)) for each in families.settings()],
        rounds=[trials.rounds_to_verdict(effect, few, _rng("rounds", effect)).as_dict() for effect in EFFECTS],
        prefixes=mysql.prefixes(),
        told={side: mysql.told(side) for side in mysql.SIDES},
        relabelled={side: mysql.relabelled(side, many, _rng("relabelled", side)) for side in mysql.SIDES},
        series=alarmed,
        false_alarms=[
            series.false_alarms(kind, samples, alarmed, _rng("series", kind, samples))
            for kind in series.KINDS
            for samples in series.LENGTHS
        ],
        at_the_margin=[limits.at_the_margin(shape, some, _rng("margin", shape)) for shape in limits.SHAPES],
        stalling=[limits.stalling(of, max(20, few), _rng("stalling", of)) for of in limits.STALLS],
        gates=limits.gates(some, _rng("gates")),
        aimed=[aims.aimed(kind, many, _rng("aimed", kind)) for kind in noise.KINDS],
        power=[aims.power(effect, some, _rng("power", effect)) for effect in aims.EFFECTS],
        promised=[
            aims.promised(kind, rounds, some, _rng("promised", kind, rounds))
            for kind in aims.PLANNED
            for rounds in aims.ENDS
        ],
        alike=[limits.alike(margin, few, _rng("alike", margin)) for margin in limits.MARGINS],
        **scheduled(max(20, few)),
    )


def scheduled(studies: int) -> dict[str, Any]:
    """What is simulated of which trials run when."""
    return {
        "adjacency": [
            schedule.adjacency(kind, count, studies, _rng("adjacency", kind, count))
            for kind in schedule.KINDS
            for count in schedule.COMBINATIONS
        ],
        "resting": [schedule.resting(each, studies, _rng("resting", each)) for each in schedule.settings()],
    }


def _rng(*what: object) -> np.random.Generator:
    return np.random.default_rng([SEED, crc32(repr(what).encode())])


if __name__ == "__main__":
    sys.exit(main())
