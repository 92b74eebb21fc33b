"""Groups of the ZFS Test Suite, unmodified, by ``storlab suite run`` and by the suite's own runner in guests alike.

``STORLAB_ZTS_GROUPS`` names their tags with commas; `make zts-subset` takes all those of ``ALL``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from laboratory import Laboratory
from laboratory.guests import needs_guests
from run.test_suites import laboratory, planted
from storlab.records.suite import SuiteRun, read_suite_run
from storlab.suite.model import Outcome
from storlab.suite.zts_text import ResultLine, read_results, report_name

ALL = "devices,zvol_cli,btree,acl,delegate,events,zfs_snapshot,zfs_share,alloc_class,zpool_create,fault"  # cheap first
_ASKED = os.environ.get("STORLAB_ZTS_GROUPS", "devices,zvol_cli,btree,acl")
GROUPS = (ALL if _ASKED == "all" else _ASKED).split(",")  # not wherever "all" stands: there is alloc_class
HOUR = 3600
LIMIT = len(GROUPS) * HOUR + 600 if "STORLAB_ZTS_GROUPS" in os.environ else 900  # s, for each of the two
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * LIMIT)]
# The original's runner with its own runfiles, as a test of its own for each tag.
ORIGINAL = """
cd "$TMPDIR"
env -i PATH="$PATH" HOME="$HOME" USER="$USER" DISKS="$DISKS" /usr/share/zfs/zfs-tests.sh -T {tag}
"""


@dataclass(frozen=True)
class Both:
    """What both said of each script. By identifier and path; the last of several."""

    lab: Laboratory
    run: SuiteRun
    ours: dict[tuple[str, str], ResultLine]
    theirs: dict[tuple[str, str], ResultLine]


def by_script(lines: Iterable[str]) -> dict[tuple[str, str], ResultLine]:
    return {(result.identifier, result.path): result for result in read_results(lines)}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    for lab in laboratory(tmp_path_factory.mktemp("subset")):
        two = ("--guests", "2", "--allow-missing", "--out")
        said = lab.storlab("suite", "run", "zts", "-T", ",".join(GROUPS), *two, lab.out, timeout=LIMIT)
        assert said.status in (0, 3), said
        runfile = planted(
            lab.folder / "own",
            {f"tests/{tag}/original": ORIGINAL.format(tag=tag) for tag in GROUPS},
            "\n".join(f"[tests/{tag}]\ntests = ['original']\ntimeout = {HOUR}\npre =\npost =\n" for tag in GROUPS),
        )
        original = lab.folder / "original"
        lab.storlab("suite", "run", runfile, "--tests", runfile.parent, *two, original, timeout=LIMIT)
        theirs: dict[tuple[str, str], ResultLine] = {}
        for attempt in read_suite_run(original).results.values():
            text = (original / attempt.folder / "stdout").read_text(errors="replace")
            assert "Results Summary" in text, (attempt, text[-2000:])
            theirs.update(by_script(text.splitlines()))
        yield Both(lab, read_suite_run(lab.out), by_script(said.stdout.splitlines()), theirs)


@needs_guests
def test_each_script_has_the_result_that_the_original_runner_gives(both: Both) -> None:
    differ = {key: (both.ours[key], both.theirs[key]) for key in both.ours.keys() & both.theirs.keys()}
    differ = {key: pair for key, pair in differ.items() if pair[0].outcome is not pair[1].outcome}
    limits = {attempt.path: attempt.limit or 0.0 for attempt in both.run.attempts}
    given_longer = {
        key
        for key, (_, theirs) in differ.items()
        if theirs.outcome is Outcome.KILLED and theirs.elapsed >= limits[key[1]] > 0
    }
    for key, (ours, theirs) in sorted(differ.items()):
        why = "the original gives a slow guest no longer" if key in given_longer else "differs"
        print(
            f"{report_name(key[1])}: {ours.outcome} in {ours.elapsed} s, with the original {theirs.outcome} "
            f"in {theirs.elapsed} s; {why}"
        )
    same = len(both.ours) - len(differ)
    print(f"{', '.join(GROUPS)}: {len(both.ours)} scripts, {same} with the same result")
    assert both.ours.keys() == both.theirs.keys()
    assert differ.keys() == given_longer


@needs_guests
def test_every_group_that_was_asked_for_had_tests_and_all_of_them_a_result(both: Both) -> None:
    tags = {tag for group in both.run.asked.groups for tag in group.tags}
    assert set(GROUPS) <= tags and both.run.without_result == []
    assert {key[1] for key in both.run.results} == {
        path for _, path in both.theirs if path.rpartition("/")[2] not in ("setup", "cleanup")
    }
