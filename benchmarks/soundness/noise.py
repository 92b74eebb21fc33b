"""Machines on which nothing differs: the log of what each gives, slot by slot of time, whatever runs there.

Made up or recorded. All generators give an array of shape ``(studies, slots)``; a study that runs two levels over n
rounds takes 2·n slots. ``data/`` holds the recorded ones: trials of fio on a shared virtual machine, all of one and
the same load, and the transactions per second of two public 12-hour MySQL runs (sysbench, 128 threads, InnoDB's
doublewrite buffer off in one and on in the other), every 2 s.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DATA = Path(__file__).resolve().parent / "data"
SPREAD = 0.05
"""Of one trial, in logs: about 5 %."""

MADE_UP = ("log-normal", "heavy tails", "drift", "regimes", "AR(1)")
RECORDED = ("recorded: fio", "recorded: MySQL, off", "recorded: MySQL, on")
KINDS = (*MADE_UP, *RECORDED)

_BLOCK = 20  # trials in a row that are taken from a record together, so that what lasts, lasts
_PIECE = 5  # intervals of 2 s that make a trial of the MySQL runs: 10 s


def slots(kind: str, studies: int, count: int, rng: np.random.Generator) -> Floats:
    """Logs of ``count`` trials in a row, on so many machines of one kind."""
    if kind in RECORDED:
        return _by_blocks(_trials(kind), studies, count, rng)
    shape = (studies, count)
    if kind == "heavy tails":
        return np.asarray(SPREAD * rng.standard_t(3, size=shape))
    steady = np.asarray(SPREAD * rng.normal(size=shape))
    if kind == "drift":  # to half of the speed
        return np.asarray(steady - np.linspace(0, np.log(2), count))
    if kind == "regimes":  # full speed and 60 %, which last 20 trials on average
        slow: NDArray[np.bool_] = np.cumsum(rng.random(shape) < 0.05, axis=1) % 2 == 1
        return np.asarray(steady + np.log(0.6) * slow)
    if kind == "AR(1)":  # nine tenths of a disturbance are left in the next trial
        for slot in range(1, count):
            steady[:, slot] += 0.9 * steady[:, slot - 1]
    return steady


def interleave(machines: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """What a and b gave in each round (shape ``(studies, rounds)``), in an order within rounds drawn by lot."""
    first: NDArray[np.bool_] = rng.random((len(machines), machines.shape[1] // 2)) < 0.5
    even, odd = machines[:, ::2], machines[:, 1::2]
    return np.where(first, even, odd), np.where(first, odd, even)


@lru_cache(maxsize=8)
def recorded(name: str) -> Floats:
    """A record: ``fio`` (bandwidth of each trial), ``mysql-off`` or ``mysql-on`` (transactions per second)."""
    return np.asarray(pl.read_parquet(DATA / f"{name}.parquet")["value"].to_numpy(), dtype=np.float64)


def pieces(values: Floats, length: int, start: int = 0) -> Floats:
    """Means of pieces of ``length`` values, one after the other; the rest at the end is left out."""
    whole = (len(values) - start) // length
    return np.asarray(values[start : start + whole * length].reshape(whole, length).mean(axis=1))


def _trials(kind: str) -> Floats:
    if kind == "recorded: fio":
        return np.log(recorded("fio"))
    return np.log(pieces(recorded(f"mysql-{kind.rsplit(' ', 1)[1]}"), _PIECE))


def _by_blocks(trials: Floats, studies: int, count: int, rng: np.random.Generator) -> Floats:
    """Blocks from anywhere in the record, one after the other (a circular block bootstrap)."""
    starts = rng.integers(0, len(trials), size=(studies, -(-count // _BLOCK), 1))
    taken = (starts + np.arange(_BLOCK)) % len(trials)
    return np.asarray(trials[taken.reshape(studies, -1)[:, :count]])
