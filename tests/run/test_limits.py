"""What a load may take: what is refused, and that the limit is kept, by a real kernel."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory import Laboratory
from laboratory.studies import ON_LOOP, directory
from storlab.base.errors import StudyError
from storlab.study.study import load_study
from storlab.workloads.limits import _took

# Ten a second leave an emulated guest beside other load 100 ms for each, so that it can keep up with its limit.
WRITER = "fio = { rw = 'randwrite', bs = '4k', direct = 1, size = '160k' }\nlimits = '{limit}'"
LIMITS = """
[nodes.vm]
kind = "vm"
memory = "256M"
[factors.limit]
none = {}
slow = { io_max = { wiops = 10 }, memory_max = "64M", memory_high = "48M", cpu_max = 0.9, cpuset = "0" }
weight = { io_weight = 50 }
latency = { io_latency = "5ms" }
"""


@pytest.mark.needs("guests")
def test_a_limited_load_keeps_to_its_limit_and_what_would_do_nothing_is_refused(lab: Laboratory) -> None:
    stack = '[{ layer = "file", size = "16M" }, { layer = "virtio-blk", queue = { scheduler = "mq-deadline" } }]'
    lab.execute(directory(WRITER, rest=LIMITS, stack=stack))
    ended = {str(record.levels["limit"]): record for record in lab.records()}
    statuses = {"none": "done", "slow": "done", "weight": "unsupported", "latency": "unsupported"}
    assert {name: record.status for name, record in ended.items()} == statuses
    (found,) = [each for each in ended["slow"].facts["vm"] if each["layer"] == "limits"]
    assert found["io.max"].endswith("rbps=max wbps=max riops=max wiops=10") and found["load"] == "load"
    plain = {"memory.max": "67108864", "memory.high": "50331648", "cpu.max": "90000 100000", "cpuset.cpus": "0"}
    assert found.items() >= plain.items()
    assert "would do nothing: the disk's scheduler is mq-deadline" in str(ended["weight"].reason)
    assert "its kernel has no io.latency" in str(ended["latency"].reason)
    rows = lab.run_folder.metrics.filter(pl.col("node").is_null(), source="load", metric="write.iops")
    rates = dict(rows.select("trial", "value").iter_rows())
    slow, free = rates[ended["slow"].trial], rates[ended["none"].trial]
    assert 9 < slow < 11 and free > 2 * slow


@pytest.mark.needs("root")
def test_what_a_machine_does_not_give_is_named(lab: Laboratory) -> None:
    study = directory("fio = { rw = 'write', size = '4k' }\nlimits = { cpuset = '100000' }", stack=f"[{ON_LOOP}]")
    lab.execute(study)
    (record,) = lab.records()
    assert record.status == "unsupported" and re.search(r"limits: .*cpuset", str(record.reason)), record.reason


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ("{ io_max = { iops = 5 } }", "this key is unknown"),
        ("{ io_max = { riops = 0 } }", "0 should be at least 1"),
        ("{ io_weight = 10000 }", "10000 should be at most 1000"),
        ("{ cpu_max = 0 }", "cpu_max = 0 is not a number of CPUs, such as 0.5"),
        ('{ cpuset = "0; rm" }', 'is no list of CPUs or nodes: write "0-1"'),
        ('{ memory_max = "4k" }', "limits.memory_max"),
    ],
)
def test_a_limit_that_can_not_be_is_refused(limits: str, reason: str, lab: Laboratory) -> None:
    text = directory(f"limits = {limits}\nfio = {{ rw = 'write', size = '4k' }}")
    with pytest.raises(StudyError, match=re.escape(reason)):
        load_study(lab.study(text))


@given(st.text(), st.text())
def test_whatever_a_file_says_can_be_compared(wanted: str, got: str) -> None:
    assert _took(wanted, got) in (True, False)
    assert "=" in wanted or _took(wanted, wanted)


@pytest.mark.parametrize(
    ("wanted", "got", "took"),
    [
        ("8:0 rbps=max wiops=5", "7:0 rbps=1 wiops=5\n8:0 rbps=max wbps=max riops=max wiops=5", True),
        ("8:0 rbps=max wiops=5", "8:0 rbps=max wiops=50\n7:0 rbps=max wiops=5", False),
        ("0,1,3", "0-1,3", True),
        ("0-1", "0", False),
        ("default 50", "50", True),
        ("4096", "max", False),
    ],
)
def test_a_limit_took_if_its_file_says_so(wanted: str, got: str, took: bool) -> None:
    assert _took(wanted, got) is took
