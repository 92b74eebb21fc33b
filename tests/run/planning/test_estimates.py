"""How long a round will take, and where that figure comes from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laboratory import Laboratory
from storlab.run.noise import BUILT_IN_TITLE, MachineNoise
from storlab.run.planning.estimates import ASSUMED_RATE, Speed, speed_of
from storlab.run.planning.times import start_time
from storlab.study.study import load_study, shipped_studies
from storlab.workloads.base import Work

NOISE = MachineNoise(
    machine="m", measured="2026-11-24T05:00:00+00:00", study="", title=BUILT_IN_TITLE, metric="bandwidth", seconds=1.0,
    overhead=0.5, values=(40_960_000.0, 4_096_000.0, 8_192_000.0),
)  # fmt: skip


def work_of(folder: Path, load: str) -> Work | None:
    path = folder / "study.toml"
    path.write_text(f'title = "A"\nstack = [{{ layer = "directory" }}]\n[workload.w]\n{load}\n')
    return load_study(path).cells[0].loads[0].workload.work()


@pytest.mark.parametrize(
    ("load", "work"),
    [
        ('fio = { rw = "write", bs = "4k", size = "4M" }', Work(4 << 20, 0)),
        ('fio = { rw = "write", bs = "4k", size = "4M", fsync = 1 }', Work(4 << 20, 1024)),
        ('fio = { rw = "write", bs = "4k", size = "4M", fdatasync = 4, numjobs = 2 }', Work(8 << 20, 512)),
        ('fio = { rw = "randread", bs = "4k", size = "1G", io_size = "4M" }', Work(4 << 20, 1024)),
        ('fio = { rw = "write", bs = "4k", size = "4M", loops = 3, runtime = "10s" }', Work(12 << 20, 0, 10.0)),
        ('fio = { rw = "write", bs = "4k", size = "50%" }', None),
        ('files = { files = 1000, size = "4k", phases = ["create", "read"], fsync = "file" }', Work(8_192_000, 1000)),
        ('files = { files = 1000, size = "4k", phase_limit = "5s" }', None),
        ('bonnie = { size = "64M", fast = true }', Work(256 << 20, 8192)),
        ('command = { argv = ["make"] }', None),
    ],
)
def test_a_load_without_a_time_says_how_much_it_does(tmp_path: Path, load: str, work: Work | None) -> None:
    assert work_of(tmp_path, load) == work


def test_an_amount_takes_as_long_as_its_bytes_and_its_waits_but_no_longer_than_it_says() -> None:
    assert Speed(100.0, 10.0).seconds(Work(200, 30)) == 5.0
    assert Speed(100.0, 10.0).seconds(Work(200, 30, longest=4.0)) == 4.0


def test_the_rate_is_that_of_storlab_noise_where_it_ran_its_own_study() -> None:
    assert (speed_of(NOISE).rate, speed_of(NOISE).measured) == (2000.0, "2026-11-24")
    other = MachineNoise("m", NOISE.measured, "", "Another study", "bandwidth", 1.0, 0.5, NOISE.values)
    assert [speed_of(noise).rate for noise in (None, other)] == [ASSUMED_RATE] * 2


def test_a_plan_says_what_its_time_rests_on_and_takes_it_from_the_last_run_where_there_is_one(lab: Laboratory) -> None:
    study = lab.study(
        'repeat = { min = 2, max = 2 }\nstack = [{ layer = "directory" }]\n[probes]\n'
        '[trial]\nsettle = { sync = false, drop_caches = false }\n[factors]\nsize = ["1M", "2M"]\n'
        '[workload.load]\nfio = { rw = "write", bs = "64k", size = "{size}" }\n'
    )

    def line(label: str) -> str:
        shown = lab.storlab("plan", study, cwd=lab.folder).stdout
        text = re.search(rf"^{label} +(.*)$", shown, re.MULTILINE)
        assert text is not None, shown
        return text[1]

    assert (
        "load by the amount of work at 1,000 operations/s that wait for storage and 200 MiB/s, which is assumed"
        in line("Time")
    )
    assert re.fullmatch(rf"2M of \d+G free in {lab.scratch}, for files of the loads", line("Disk space"))
    assert lab.storlab("run", study, "--quiet", cwd=lab.folder).status == 0
    assert "if trials take as long as in its last run, runs/study-" in line("Time")
    lab.study(study.read_text().partition("repeat")[1] + study.read_text().partition("repeat")[2] + "# another text\n")
    assert "which is assumed" in line("Time")


def test_servers_take_time_in_each_trial_and_guests_for_a_round_once() -> None:
    names = ("database-variability", "shared-folders-network")
    database, guest = (load_study(shipped_studies()[name]).cells[0] for name in names)
    assert start_time(database, "trial") == pytest.approx(2 + 4 * 50_000 * 600 / 100e6)
    assert (start_time(database, "round"), start_time(guest, "trial")) == (0, 0)
    assert start_time(guest, "round") == guest.nodes["vm"].start_time() > 0
