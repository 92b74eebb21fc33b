"""Tests that measure: what they leave is kept, within bounds, and without it they have not passed."""

from __future__ import annotations

import polars as pl
import pytest

from laboratory import Laboratory
from run.test_suites import result
from run.test_suites_here import HERE, outcomes, own
from storlab import open_run
from storlab.records.run_folder import RunFolder
from storlab.suites.model import Outcome
from storlab.suites.records.folder import read_suite_run
from storlab.suites.run.output import is_plain_path

pytestmark = pytest.mark.needs("root")
FIO = '{"fio version": "fio-3.33"}'
CONFIG = 'mkdir -p perf_data; test -e perf_data/config.json || echo "{}" > perf_data/config.json'
SCRIPTS = {
    "measures": f"{CONFIG}; echo '{FIO}' > perf_data/measures.fio.sync.8k-ios.16-threads.1-filesystems",
    "nameless": f"{CONFIG}; echo '{FIO}' > perf_data/.fio.sync.8k-ios.16-threads.1-filesystems; ls perf_data",
    "nothing": f"{CONFIG}; : > perf_data/nothing.fio.sync; mkdir other; echo 1 > other/a.fio.x",
    "fails": f"{CONFIG}; exit 1",
}


def test_what_tests_measured_is_kept_and_one_that_measured_nothing_has_not_passed(lab: Laboratory) -> None:
    said = lab.storlab(*own(lab.folder, "tags = ['perf']\n", **SCRIPTS), "--out", lab.out)
    run = read_suite_run(lab.out)
    passed, failed = (dict.fromkeys(each, Outcome.PASS) for each in (("measures", "nameless"), ("nothing", "fails")))
    assert outcomes(lab) == passed | dict.fromkeys(failed, Outcome.FAIL), said
    kept = {name: lab.out / result(run, f"/{name}").folder / "perf_data" for name in SCRIPTS}
    names = {name: sorted(path.name for path in folder.iterdir()) for name, folder in kept.items()}
    # Each has its own: what an earlier test left was taken away, with what is of the machine.
    assert names["measures"] == ["config.json", "measures.fio.sync.8k-ios.16-threads.1-filesystems"]
    assert names["nameless"] == [".fio.sync.8k-ios.16-threads.1-filesystems", "config.json"]
    assert (kept["measures"] / names["measures"][1]).read_text() == f"{FIO}\n"
    reason = "it passed, but measured nothing: it left no *.fio.* in perf_data"
    assert result(run, "/nothing").reason == reason and reason in said.stdout
    assert result(run, "/fails").reason == "" and result(run, "/fails").kept == ["perf_data"]


def test_tests_of_other_tags_may_leave_nothing(lab: Laboratory) -> None:
    lab.storlab(*own(lab.folder, "tags = ['functional']\n", nothing="true"), "--out", lab.out)
    assert outcomes(lab) == {"nothing": Outcome.PASS}


def test_names_that_lead_elsewhere_and_files_without_end_are_not_kept(lab: Laboratory) -> None:
    odd = f"{CONFIG}; echo 1 > perf_data/$(printf 'a\\033b').fio.x; ln -s /etc/passwd perf_data/link.fio.x"
    huge = "truncate --size 300M perf_data/huge; echo 1 > perf_data/a.fio.x"
    link = f"rm -rf perf_data; mkdir {lab.folder}/x; echo 1 > {lab.folder}/x/a.fio.x; ln -s {lab.folder}/x perf_data"
    below = f"mkdir {'a' * 200} && cd {'a' * 200}"
    deep = f"{CONFIG}; cd perf_data; for i in 1 2 3 4 5 6; do {below}; done; echo 1 > a.fio.x"
    scripts = {"deep": deep, "odd": odd, "huge": f"{CONFIG}; {huge}", "link": link}
    lab.storlab(*own(lab.folder, "tags = ['perf']\n", **scripts), "--out", lab.out)
    run = read_suite_run(lab.out)
    kept = {name: lab.out / result(run, f"/{name}").folder / "perf_data" for name in ("odd", "huge")}
    assert [path.name for path in kept["odd"].iterdir()] == ["config.json"]
    assert outcomes(lab) == {"deep": Outcome.FAIL, "odd": Outcome.FAIL, "huge": Outcome.PASS, "link": Outcome.FAIL}
    assert result(run, "/link").kept == [] and (lab.folder / "x" / "a.fio.x").exists()
    assert sorted(path.name for path in kept["huge"].iterdir()) == ["a.fio.x", "config.json"]
    assert result(run, "/huge").dropped == 300 * 1024**2


BELOW = ("a.fio.x", "a/b/c", "é" * 127)
ELSEWHERE = ("", "/etc/passwd", "../a", "a/../../b", "a//b", "a\0b", "a\nb", "é" * 128, "/".join(["a" * 200] * 6))


@pytest.mark.parametrize("path", BELOW + ELSEWHERE)
def test_a_path_that_a_node_says_leads_to_a_file_below_its_folder_or_is_left_out(path: str) -> None:
    assert is_plain_path(path) == (path in BELOW)


def test_the_classic_folder_has_all_in_one_under_names_that_say_which_test_it_was(lab: Laboratory) -> None:
    words = own(lab.folder, "tags = ['perf']\n", **SCRIPTS)
    where = ("-c", words[2], "-i", words[4], "--here", HERE, "-o", lab.folder / "results", "--out", lab.out)
    said = lab.storlab("suite", "test-runner", *where)
    names = sorted(path.name for path in (lab.folder / "results" / "current" / "perf_data").iterdir())
    of_fio = [f"{test}.fio.sync.8k-ios.16-threads.1-filesystems" for test in ("measures", "nameless")]
    assert names == ["config.json", *of_fio, "nothing.fio.sync"], said


@pytest.mark.needs("zfs")
def test_a_test_of_tests_perf_runs_unmodified_and_its_folder_is_imported(lab: Laboratory) -> None:
    test = "random_writes_zil"
    lab.environment |= {"PERF_RUNTIME": "5", "PERF_NTHREADS": "2", "PERF_SYNC_TYPES": "1"}
    words = ("suite", "run", "zts-perf", "--test", test, "--disk-size", "256M", "--memory", "1G", "--allow-missing")
    said = lab.storlab(*words, "--out", lab.out, timeout=1200)
    assert outcomes(lab) == {test: Outcome.PASS}, said
    kept = lab.out / result(read_suite_run(lab.out), f"/{test}").folder / "perf_data"
    names = sorted(path.name for path in kept.iterdir())
    suffix = "sync.8k-ios.2-threads.1-filesystems"
    # Debian's 2.3.2 loses the name of the test.
    assert {f".fio.{suffix}", f".zpool.iostat.{suffix}", f".perf.{suffix}", "config.json"} <= set(names)
    imported = lab.folder / "imported"
    said = lab.storlab("import", "zfs-perf", lab.out / "output", "--out", imported)
    assert said.status == 0 and "lack their test" not in said.stderr, said
    metrics = open_run(imported).metrics.filter(pl.col("job").is_null())
    assert {"bandwidth", "pool.read.iops", "pool.write.bandwidth"} <= set(metrics["metric"])
    records = list(RunFolder.open(imported).records())
    assert len(records) == 2, "with a file system for all threads, and with one for each"
    assert all("machine ncpus" in record.facts["imported"][0] for record in records)
