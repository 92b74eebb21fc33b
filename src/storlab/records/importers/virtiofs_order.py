"""The workloads of virtiofs-tests in the order of the tables that it publishes (``parse-fio-results.sh``)."""

from __future__ import annotations

from itertools import product

PATTERNS = ("seqread", "randread", "seqwrite", "randwrite", "randrw")
ENGINES = ("psync", "mmap", "libaio")

WORKLOADS = tuple(f"{pattern}-{engine}{jobs}" for pattern, engine, jobs in product(PATTERNS, ENGINES, ("", "-multi")))
"""Each alone, then with several jobs."""
