"""Runfiles, a machine that has what they name, and a table of expectations, all of our own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from storlab.records.manifest import Manifest, write_manifest
from storlab.suites.expectations import read_expectations
from storlab.suites.groups import Installed
from storlab.suites.model import Attempt, Outcome, Suite
from storlab.suites.records.folder import Results, SuiteRecord, SuiteRun, read_suite_run, write_suite_record
from storlab.suites.runfile import Runfile, read_suite

GOLDEN = Path(__file__).parent / "golden"
HERE = "/suite"
RUNFILE = (GOLDEN / "ours.run").read_text()
FILES = (
    *(f"{HERE}/tests/pool/{name}.ksh" for name in ("setup", "cleanup", "create", "destroy", "rename")),
    *(f"{HERE}/tests/acl/{name}.sh" for name in ("setup", "cleanup", "allow")),
    f"{HERE}/tests/disk/write",
    f"{HERE}/callbacks/failsafe.ksh",
)
INSTALLED = Installed(frozenset(FILES), frozenset({f"{HERE}/tests/pool/plain.ksh"}), frozenset({"root", "nobody"}))
REPORT = (GOLDEN / "zts-report.txt").read_text()


def suite_of(*texts: str, installed: Installed = INSTALLED) -> Suite:
    runfiles = [Runfile(f"{number}.run", text) for number, text in enumerate(texts, 1)]
    return read_suite("ours", runfiles, installed, HERE)


SUITE = suite_of(RUNFILE)
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def attempt(path: str, outcome: Outcome = Outcome.PASS, **more: Any) -> Attempt:
    begun = {"started": BEGAN, "elapsed": 1.5, "user": "root", **more}
    return Attempt("tests/pool", f"/usr/share/zfs/zfs-tests/tests/functional/{path}", "test", outcome, **begun)


def of(suite: Suite, which: int, /, outcome: Outcome = Outcome.PASS, **more: object) -> Attempt:
    group, test = [(group, test) for group in suite.groups for test in group.tests][which]
    return replace(Attempt(group.name, test.path, "test", outcome, BEGAN, 1.5, user="root"), **more)


def passes(suite: Suite = SUITE, first: int = 0) -> list[Attempt]:
    """A pass of each of a suite's tests from this one on."""
    return [of(suite, number) for number in range(first, suite.size)]


def written(folder: Path, suite: Suite, *attempts: Attempt) -> SuiteRun:
    """A run with these results, written and read back."""
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, Manifest("r1", "Suite ours", "0.1", ("storlab",), BEGAN, suite="ours", finished=BEGAN))
    tables = read_expectations(REPORT, "report.py")
    record = SuiteRecord("ours", "tester", suite.groups, (), HERE, expectations=tables, absent=suite.absent)
    write_suite_record(folder, record)
    with Results(folder) as results:
        for each in attempts:
            results.add(each)
    return read_suite_run(folder)


def recorded(run: SuiteRun, **fields: Any) -> SuiteRun:
    write_suite_record(run.folder, replace(run.asked, **fields))
    return read_suite_run(run.folder)


def sayings(name: str) -> list[tuple[str, str]]:
    """Of a file of samples: what is said of each, which stands on the line above it, and the sample."""
    parts = re.split(r"^#### (.*)\n", (GOLDEN / name).read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def judgements(name: str) -> list[tuple[str, int | None, Outcome, str]]:
    """Of a file of outputs: each with the status of who printed it, and what came of it, and why."""
    said = ((text, *f"{head}  ".split(" ", 2)) for head, text in sayings(name))
    return [(text, None if code == "None" else int(code), Outcome[came], why.strip()) for text, code, came, why in said]
