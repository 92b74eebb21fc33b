"""Variables of tests/perf: which are taken, what each may be, and what is said of others."""

from __future__ import annotations

import pytest

from storlab.cli.suite.measuring import measuring
from storlab.errors import UserError
from storlab.run.suite.asked import Asked
from storlab.suite.adapters.zts import Zts
from storlab.suite.perf_variables import VARIABLES, perf_variables


def test_known_variables_are_taken_and_those_of_other_programs_are_left_alone() -> None:
    given = {
        "PERF_RUNTIME": "5",
        "PERF_NTHREADS": "8 16",
        "PERF_NTHREADS_PER_FS": "0 1 8",
        "PERF_FS_OPTS": "-o recsize=1m",
        "ZINJECT_DELAYS": "10:1",
        "PERF_IOSIZES": "",
    }
    others = {"HOME": "/root", "PERF_PAGER": "less", "PERFPOOL": "other"}
    assert perf_variables(given | others) == {name: value for name, value in given.items() if value}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PERF_RUNTIME", "0", "PERF_RUNTIME: '0' is not valid; an example: 180, in seconds"),
        ("PERF_NTHREADS", "8 many", "PERF_NTHREADS: 'many' is not valid; an example: \"8 16\""),
        ("PERF_SYNC_TYPES", "2", "PERF_SYNC_TYPES: '2' is not valid"),
        ("PERF_IOSIZES", "8k;reboot", "PERF_IOSIZES: '8k;reboot' is not valid"),
        ("PERF_FIO_FORMAT", "xml", "PERF_FIO_FORMAT: 'xml' is not valid; an example: json"),
        ("PERF_NTHREADS", "1\u0663", "PERF_NTHREADS: '1\u0663' is not valid"),  # a digit that no shell counts with
        ("PERF_NTHREAD", "8", "PERF_NTHREAD is not a variable of tests/perf: did you mean PERF_NTHREADS?"),
    ],
)
def test_what_a_variable_can_not_be_is_said_with_what_it_could(name: str, value: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        perf_variables({name: value})
    assert str(refused.value).startswith(said)


def test_threads_that_can_not_be_shared_evenly_among_file_systems_are_refused() -> None:
    with pytest.raises(UserError, match="8 threads do not divide into 3 for each file system"):
        perf_variables({"PERF_NTHREADS": "9 8", "PERF_NTHREADS_PER_FS": "0 3"})


def test_examples_are_valid() -> None:
    for name, variable in VARIABLES.items():
        value = variable.example.replace('"', "").partition(": ")[0]
        value = value if "such" in value or name == "PERF_COLLECT_SCRIPTS" else value.partition(",")[0]
        assert perf_variables({name: value}) == {name: value}


def test_zts_perf_is_the_suite_s_runfile_with_these_variables_and_disks() -> None:
    asked = measuring(Asked(("zts-perf",)), {"PERF_RUNTIME": "5"}, "1G")
    assert isinstance(asked.adapter, Zts)
    assert asked.adapter.files("zts-perf") == ("/usr/share/zfs/runfiles/perf-regression.run",)
    needs = asked.adapter.needs()
    assert needs.given["PERF_RUNTIME"] == "5" and needs.disk_size == 1024**3 and needs.disks == 3
    assert {"perf", "fio"} <= set(needs.programs)
    without = measuring(Asked(("zts-perf",), allow_missing=True), {}, "").adapter
    assert isinstance(without, Zts) and "perf" not in without.needs().programs
    assert measuring(Asked(("zts",)), {"PERF_RUNTIME": "nonsense"}, "").adapter is None


@pytest.mark.parametrize(
    ("size", "environment", "said"),
    [
        ("1", {}, "--disk-size 1: the ZFS Test Suite's pools need 256M at least"),
        ("large", {}, "--disk-size large: write a size"),
        ("", {"NFS_CLIENT": "there"}, "NFS_CLIENT: performance tests over NFS need a second machine"),
        ("", {"DISKS": "sda"}, "DISKS names disks of this machine"),
    ],
)
def test_sizes_and_places_that_can_not_be_are_refused(size: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        measuring(Asked(("zts-perf",)), environment, size)
