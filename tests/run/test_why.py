"""Mechanisms that are put there by hand are named on the real machine, with the values that they have."""

from __future__ import annotations

import pytest

from laboratory import Laboratory, needs_root
from storlab.analysis.summary import Comparison, Difference

STUDY = """
primary = "bandwidth"
stack = [{ layer = "file", size = "24M", allocate = "preallocated" }, LOOP]
repeat = { until = "max", min = 7, max = 7 }
trial = { settle = { sync = false, drop_caches = false }PREPARE }
factors.side = { levels = LEVELS }
workload.load.fio = { FIO }
[probes]
host-load = {}
"""
WRITES = 'rw = "write", bs = "256k", ioengine = "psync", direct = 1, size = "16M"'
READS = 'rw = "read", bs = "4k", ioengine = "psync", size = "16M"'


def study(levels: tuple[str, str], fio: str, prepare: str = "", loop: str = '{ layer = "loop" }') -> str:
    text = STUDY.replace("LEVELS", str(list(levels))).replace("FIO", fio).replace("LOOP", loop)
    return text.replace("PREPARE", f", prepare = [{prepare}]" if prepare else "")


def compared(lab: Laboratory, text: str) -> Comparison:
    outcome = lab.execute(text)
    assert outcome.ending == "complete", outcome.ending
    (comparison,) = outcome.summary.comparisons
    return comparison


def named(comparison: Comparison) -> dict[str, Difference]:
    """The first three lines, by each metric that they are about."""
    assert comparison.why is not None
    first = comparison.why.differences[:3]
    return {name.rpartition(":")[2]: d for d in first for name in (d.metric, *d.alike)}


@needs_root
@pytest.mark.slow
def test_an_fsync_after_each_write_is_named_as_flushes_for_each_operation(lab: Laboratory) -> None:
    flushes = named(compared(lab, study(("0", "1"), f'{WRITES}, fsync = "{{side}}"')))
    found = flushes["disk.target.flushes"]
    assert (found.a, found.per) == (0.0, "operation")
    assert found.b == pytest.approx(1.0, abs=0.1)


@needs_root
@pytest.mark.slow
def test_read_ahead_of_half_the_size_is_named_as_the_size_of_reads(lab: Laboratory) -> None:
    prepare = '["blockdev", "--setra", "{side}", "{target}"]'
    sizes = named(compared(lab, study(("256", "128"), READS, prepare)))
    assert {"disk.target.read_size", "disk.target.reads"} <= sizes.keys()
    found = sizes["disk.target.read_size"]
    assert found.ratio is not None
    assert max(found.ratio, 1 / found.ratio) == pytest.approx(2.0, rel=0.2)


@needs_root
@pytest.mark.slow
def test_a_setting_that_differs_is_named_as_a_fact(lab: Laboratory) -> None:
    loop = '{ layer = "loop", sector_size = "{side}" }'
    comparison = compared(lab, study(("512", "4k"), WRITES, loop=loop))
    assert comparison.why is not None
    facts = {fact.name: (fact.a, fact.b) for fact in comparison.why.facts}
    assert facts["logical_block_size of loop"] == ("512", "4096")
