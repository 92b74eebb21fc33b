"""Metrics of Bonnie++, declared: of each of its twelve tests a rate, a share of CPU and the longest operation."""

from __future__ import annotations

from functools import cache

from storlab.metrics import MetricSpec

OUTPUT = {
    "putc": "write.char",
    "put_block": "write.block",
    "rewrite": "rewrite",
    "getc": "read.char",
    "get_block": "read.block",
    "seeks": "seek",
}
CREATE = {
    "seq_create": "sequential.create",
    "seq_stat": "sequential.stat",
    "seq_del": "sequential.delete",
    "ran_create": "random.create",
    "ran_stat": "random.stat",
    "ran_del": "random.delete",
}
TESTS = OUTPUT | CREATE
"""Bonnie++'s name of a test → ours, by which its metrics begin."""
IN_BYTES = frozenset(OUTPUT) - {"seeks"}
"""The tests whose rate is one of bytes."""

_PER_CHARACTER = ("putc", "getc")


@cache
def of_test(test: str) -> tuple[MetricSpec, ...]:
    """``test`` as Bonnie++ calls it. A rate is one of bytes, or of operations."""
    name = TESTS[test]
    rate, unit = ("bandwidth", "B/s") if test in IN_BYTES else ("rate", "1/s")
    return (
        MetricSpec(f"{name}.{rate}", unit, "higher", quantity="throughput", by_job=False),
        MetricSpec(f"{name}.cpu", "1", "neither", "mean"),
        MetricSpec(f"{name}.latency.max", "s", "lower", "max"),
    )


def declared(*, data: bool = True, per_character: bool = True, files: bool = True) -> tuple[MetricSpec, ...]:
    """All that it may yield: with tests of ``data``, those by characters among them, and of ``files``."""
    output = [test for test in OUTPUT if data and (per_character or test not in _PER_CHARACTER)]
    return tuple(spec for test in (*output, *(CREATE if files else ())) for spec in of_test(test))
