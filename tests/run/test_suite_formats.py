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


# As xfstests: a program that compares what tests print with what they are to print, and keeps what differs.
CHECK = r"""#!/bin/bash
failed=0
for test; do
    mkdir -p "results/${test%/*}"
    out=results/$test.out.bad
    rm -f "results/$test.notrun"
    seqres=results/$test bash "tests/$test" > "$out" 2>&1
    if [ -e "results/$test.notrun" ]; then
        echo "$test       [not run] $(cat "results/$test.notrun")"
    elif cmp -s "$out" "tests/$test.out"; then
        rm "$out"
        echo "$test        1s"
    else
        echo "$test       - output mismatch (see $PWD/$out)"
        failed=1
        names="$names $test"
    fi
    echo "Ran: $test"
done
[ -z "$names" ] || echo "Failures:$names"
exit "$failed"
"""
OWN_CHECK = {
    "own/001": "_begin_fstest() { :; }\n_begin_fstest auto quick\n[ $MINE = yes ] && mount $TEST_DEV $TEST_DIR && "
    "touch $TEST_DIR/f && ls "
    "$TEST_DIR | grep f$; umount $TEST_DIR\n",
    "own/002": "_begin_fstest() { :; }\n_begin_fstest auto\necho wrong; echo everything > $seqres.full\n",
    "own/003": "_begin_fstest() { :; }\n_begin_fstest auto quick\necho no such device > $seqres.notrun\n",
    "own/004": "_begin_fstest() { :; }\n_begin_fstest dangerous\necho b > /proc/sysrq-trigger\n",
}
CHECK_FILE = """\
adapter = "check"
folder = "checkout"
environment = { MINE = "yes" }
[check]
groups = ["auto"]
exclude_groups = ["dangerous"]
[guests]
disk_size = "256M"
"""
PRINTED = {"own/001": "f\n", "own/002": "right\n", "own/003": "", "own/004": ""}


def checkout(folder: Path) -> Path:
    for name, text in {**{f"tests/{name}": text for name, text in OWN_CHECK.items()}, "check": CHECK}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for name, text in PRINTED.items():
        (folder / "tests" / f"{name}.out").write_text(text)
    return folder


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


@needs_guests
def test_a_checkout_with_a_program_check_runs_test_by_test(lab: Laboratory) -> None:
    checkout(lab.folder / "checkout")
    suite = lab.folder / "suite.toml"
    suite.write_text(CHECK_FILE)
    said = lab.storlab("suite", "run", suite, "--retries", "1", "--out", lab.out, timeout=300)
    run = read_suite_run(lab.out)
    results = {key[1].rpartition("tests/")[2]: each for key, each in run.results.items()}
    assert {name: each.outcome for name, each in results.items()} == {
        "own/001": Outcome.PASS,
        "own/002": Outcome.FAIL,
        "own/003": Outcome.SKIP,
    }, said
    assert results["own/003"].reason == "no such device" and "output mismatch" in results["own/002"].reason
    assert results["own/002"].number == 2 and said.status == 3
    kept = lab.out / results["own/002"].folder
    assert (kept / "002.out.bad").read_text() == "wrong\n" and (kept / "002.full").read_text() == "everything\n"
