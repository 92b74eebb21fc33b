"""Suites in the formats of other runners, in guests: KTAP, with subtests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from run.test_suites import laboratory
from storlab.records.suite import read_suite_run
from storlab.suite.ktap import read_ktap
from storlab.suite.model import Outcome

pytestmark = pytest.mark.slow

KTAP = r"""
adapter = "ktap"
[guests]
disks = 0
[groups.own]
tests = [
    { name = "passes", run = 'printf "KTAP version 1\\n1..2\\nok 1 one\\nok 2 two # SKIP no device\\n"' },
    { name = "fails", run = 'printf "1..1\\n  1..2\\n  ok 1 a\\n  not ok 2 b\\nnot ok 1 nested\\n"; exit 1' },
    { name = "is_cut", run = 'printf "1..3\\nok 1 one\\n"' },
    { name = "skips", run = 'printf "1..0 # SKIP no module\\n"; exit 4' },
]
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield from laboratory(tmp_path)


@needs_guests
def test_programs_that_print_ktap_are_judged_by_their_subtests(lab: Laboratory) -> None:
    path = lab.folder / "suite.toml"
    path.write_text(KTAP)
    said = lab.storlab("suite", "run", path, "--out", lab.out, timeout=300)
    results = {key[1].rpartition("/")[2]: each for key, each in read_suite_run(lab.out).results.items()}
    assert {name: (each.outcome, each.reason) for name, each in results.items()} == {
        "passes": (Outcome.PASS, ""),
        "fails": (Outcome.FAIL, "1 of 2 subtests failed: nested.b"),
        "is_cut": (Outcome.FAIL, "2 planned results are missing"),
        "skips": (Outcome.SKIP, "no module"),
    }
    assert said.status == 3 and "1 of 2 subtests failed: nested.b" in said.stdout, said
    text = lab.storlab("suite", "report", lab.out, "--format", "ktap").stdout
    (own,) = (read_ktap(text.splitlines()) or pytest.fail(text)).subtests
    assert [(each.name, each.outcome, len(each.subtests)) for each in own.subtests] == [
        ("own/passes", Outcome.PASS, 2),
        ("own/fails", Outcome.FAIL, 1),
        ("own/is_cut", Outcome.FAIL, 1),
        ("own/skips", Outcome.SKIP, 0),
    ]
    assert json.loads(lab.storlab("suite", "report", lab.out, "--format", "json").stdout)["counts"]["FAIL"] == 2
