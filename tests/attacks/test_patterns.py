"""What patterns and outputs of a study's author can't do to whoever runs it or makes a report: go on for ever."""

from __future__ import annotations

import os

import pytest

from attacks.odd_files import bounded
from laboratory import Laboratory
from study.program import call

STUDY = """
primary = "elapsed"
stack = [{ layer = "directory" }]
[workload.load.command]
argv = ["printf", "AAAA"]
metrics = [{ name = "x", regex = 'REGEX' }]
[probes]
[repeat]
min = 1
max = 1
"""


@pytest.mark.parametrize("regex", [r"(?:a|aa)+b(\d)", r"(?:a+)+(\d)$", r"(?:(?:a*)*)*(\d)\z", r"(?:.*a){20}b(\d)"])
def test_no_pattern_makes_a_run_or_its_report_go_on_for_ever(regex: str, lab: Laboratory) -> None:
    ended = lab.run(STUDY.replace("AAAA", "a" * 600).replace("REGEX", regex), timeout=60)
    assert ended.status == 3 and "matches nothing" in ended.stdout, ended
    with bounded():
        ran = call("report", str(lab.out))
        assert "matches nothing" in ran.output and "internal error" not in ran.message, ran


def test_an_output_that_is_longer_than_any_may_be_is_not_read_into_memory(lab: Laboratory) -> None:
    ended = lab.run(STUDY.replace("AAAA", "a1").replace("REGEX", r"a(\d)"), timeout=60)
    assert ended.status == 0, ended
    (stdout,) = lab.out.rglob("stdout")
    os.truncate(stdout, 2**31 - 1)  # sparse: it takes up nothing where it comes from
    with bounded():
        ran = call("report", str(lab.out))
    assert "longer than" in ran.output + ran.message and "internal error" not in ran.message, ran
