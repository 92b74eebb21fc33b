"""``tests.parquet`` has a row for each script; a run's environment is recorded with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl

from storlab.records.manifest import Manifest, write_manifest
from storlab.records.suite import SuiteRecord, read_suite_run, write_suite_record
from storlab.records.suite.sources import observed
from storlab.records.suite.table import COLUMNS, write_tests
from storlab.suite.environment import SuiteEnvironment
from storlab.suite.model import Attempt, Group, Leak, Outcome, Script
from storlab.suite.order import repeated
from suite.samples import HERE, RUNFILE, suite_of
from suite.test_records import of, written

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_the_table_has_what_the_records_have(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    run = written(
        tmp_path,
        suite,
        of(suite, 0, Outcome.FAIL, code=1),
        of(suite, 0, number=2, leaks=[Leak("pool", "tank", "/t/a")]),
    )
    write_tests(run)
    table = pl.read_parquet(tmp_path / "tests.parquet")
    assert list(table.columns) == list(COLUMNS)
    assert table["test"].to_list() == ["tests/acl/allow"] * 2 and table["outcome"].to_list() == ["FAIL", "PASS"]
    assert table["code"].to_list() == [1, None] and table["leaks"].to_list() == [[], ["/t/a: pool tank"]]


def test_the_environment_is_recorded_and_older_runs_have_none(tmp_path: Path) -> None:
    suite = suite_of(RUNFILE)
    assert str(observed(written(tmp_path, suite, of(suite, 0)))[0].environment) == "environment not recorded"
    known = SuiteEnvironment(kernel="6.12", modules={"zfs": "2.3.2"}, cpus=2, accelerator="kvm")
    write_suite_record(tmp_path, msgspec.structs.replace(read_suite_run(tmp_path).asked, environment=known))
    assert str(observed(read_suite_run(tmp_path))[0].environment) == "kernel 6.12, ZFS 2.3.2, CPUs 2, accelerator kvm"


def test_each_iteration_counts_as_a_run(tmp_path: Path) -> None:
    suite = repeated(suite_of(RUNFILE), 3)
    pool, *_ = (group for group in suite.groups if group.name == "tests/pool")
    groups = [group for group in suite.groups if group.name.startswith("tests/pool")]
    create = pool.tests[0].path
    attempts = [
        Attempt(group.name, create, "test", outcome, BEGAN, 1.0, user="root")
        for group, outcome in zip(groups, (Outcome.PASS, Outcome.FAIL, Outcome.PASS), strict=True)
    ]
    runs = observed(written(tmp_path, suite, *attempts))
    assert [{name: [str(each.outcome) for each in tries] for name, tries in run.tests.items()} for run in runs] == [
        {"tests/pool/create": [outcome]} for outcome in ("PASS", "FAIL", "PASS")
    ]
    assert len({run.identity for run in runs}) == 3 and len({run.asked for run in runs}) == 1


def test_each_of_many_results_is_a_row(tmp_path: Path) -> None:
    count = 3_000
    write_manifest(tmp_path, Manifest("r1", "Suite ours", "0.1", ("storlab",), BEGAN, suite="ours", finished=BEGAN))
    scripts = tuple(Script(f"{HERE}/tests/pool/test_{number}", "root") for number in range(count))
    write_suite_record(tmp_path, SuiteRecord("ours", "tester", (Group("tests/pool", scripts),), (), HERE))
    lines = (Attempt("tests/pool", each.path, "test", Outcome.PASS, BEGAN, 1.5, user="root") for each in scripts)
    (tmp_path / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    run = read_suite_run(tmp_path)
    write_tests(run)
    assert (
        len(observed(run)[0].tests) == len(run.results) == pl.read_parquet(tmp_path / "tests.parquet").height == count
    )
