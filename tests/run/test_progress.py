"""What a run prints while it goes on where nobody watches: a line a round, and no sentence twice."""

from __future__ import annotations

import re

from laboratory import Laboratory

STUDY = """
primary = "took"
stack = [{ layer = "directory" }]
repeat = { until = "max", min = 3, max = 7 }
trial = { settle = { sync = false, drop_caches = false } }
compare = [{ pairs = [["new", "old"]] }]
[factors.build]
old = { took = "10" }
new = { took = "5" }
broken = { took = "never" }
[probes]

[workload.load.command]
argv = ["sh", "-c", "echo took {build.took} s; test {build.took} != never"]
metrics = [{ name = "took", regex = "took ([0-9.]+) s", unit = "s", better = "lower" }]
"""


def test_there_is_a_line_for_each_round_with_what_is_new_and_no_sentence_twice(lab: Laboratory) -> None:
    ran = lab.run(STUDY)
    assert ran.status == 3, str(ran)
    lines = ran.stderr.splitlines()
    assert any(
        re.match(r"Verdicts after \d+ rounds at the earliest.*; expected: a difference of ", line) for line in lines
    )
    rounds = [line for line in lines if line.startswith("round ")]
    assert [re.match(r"round (\d+) of 3 to 7: ", line)[1] for line in rounds] == [str(n) for n in range(1, 8)]  # type: ignore[index]
    assert "took: load: new ÷ old 0.500× | 0 of 1 decided" in rounds[0]
    assert "nothing new" in rounds[1]
    assert "took: load: new better than old, 0.500× (" in "".join(rounds)
    assert sum("as trial " in line for line in lines) == 6  # why it failed is said once
    assert len(lines) == len(set(lines)), ran.stderr
    assert re.search(r"left$", rounds[0]), rounds[0]
