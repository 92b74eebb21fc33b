"""Two runs of MySQL over twelve hours, doublewrite off and on: those that are published, and their like.

The published ones belong to others and are not part of this project: they are read where ``STORLAB_REFERENCE`` names
the folder that holds them. Their like is made here of what matters in them: the hours at which their level changes and
what it is between, the noise from sample to sample, and the slow one that lingers for some ten minutes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from .noise import Floats, ar1

REFERENCE = os.environ.get("STORLAB_REFERENCE", "")
SOURCES = ["alike", *(["published"] if REFERENCE else [])]

COUNT, INTERVAL = 21_600, 2.0  # samples; s
LEVELS = {"off": ((4.9, 5337.0), (12.0, 5272.0)), "on": ((8.5, 5365.0), (9.5, 5301.0), (12.0, 5435.0))}
"""Until which hour, in transactions/s."""
QUICK, SLOW = 27.0, 16.0  # standard deviations, transactions/s
LINGERS = 300  # samples
SEEDS = {"off": 6, "on": 104}  # of those in which the slow noise hides none of the steps, as with some it does

_LINE = re.compile(rb"^\[ (\d+)s \] thds: \d+ tps: ([\d.]+) ", re.MULTILINE)


def samples(source: str, setting: str) -> tuple[Floats, Floats]:
    """Times in seconds and transactions/s, 21,600 of each."""
    t, tps = _alike(setting) if source == "alike" else _published(setting)
    assert len(t) == len(tps) == COUNT
    return t, tps


def _alike(setting: str) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(SEEDS[setting])
    t = INTERVAL * np.arange(1.0, COUNT + 1)
    ends, levels = zip(*LEVELS[setting], strict=True)
    level = np.array(levels)[np.searchsorted(3600 * np.array(ends), t)]
    return t, level + QUICK * rng.standard_normal(COUNT) + SLOW * ar1(rng, COUNT, float(np.exp(-1 / LINGERS)))


def _published(setting: str) -> tuple[Floats, Floats]:
    text = (Path(REFERENCE) / "sysbench" / f"mysql-12h-doublewrite-{setting}.txt").read_bytes()
    rows = np.array(_LINE.findall(text), dtype=np.float64)
    return rows[:, 0], rows[:, 1]
