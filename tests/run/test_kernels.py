"""Kernels boot once a round, in guests and on machines over SSH: a boot is a block that cells share."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from laboratory import Laboratory, ended, wait_until
from laboratory.boots import booting
from laboratory.hosts import CONTROLLER, Hosts, hosts
from laboratory.studies import ON_LOOP
from laboratory.trust import trusting
from storlab.base.errors import StudyError
from storlab.images.parts import unpack_debian_kernel
from storlab.images.recipe import OWN_SERIES, series_of
from storlab.nodes.kinds.vm.hardware import Hardware
from storlab.records.run_folder import TrialRecord
from storlab.run.executor import Outcome, run_study
from storlab.run.observer import Observer
from storlab.run.planning.metrics import narrowed
from storlab.run.planning.order import round_order
from storlab.study.layout import kept_for_a_round
from storlab.study.study import Study, load_study, named_studies

NVME = """
schema = 1
title = "Health of a guest's NVMe disk"
primary = "write.iops"
stack = []
[nodes.vm]
kind = "vm"
memory = "192M"
stack = [{ layer = "file", size = "256M" }, { layer = "nvme" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
[workload.w]
on = "vm"
fio = { rw = "write", bs = "64k", ioengine = "psync", size = "1M" }
[probes]
nvme = {}
folios = {}
fragmentation = {}
"""


def kernels(*settings: str, only: tuple[str, ...] = ()) -> Study:
    return narrowed(load_study(named_studies()["kernels"], settings, only))


def run(study: Study, folder: Path, rounds: int = 1) -> Outcome:
    return asyncio.run(run_study(study, folder, 1, (rounds, rounds), Observer(), trusting(study)))


def test_cells_of_one_kernel_share_a_boot_and_follow_each_other_in_each_round() -> None:
    cells = kernels('filesystems=["ext4", "xfs", "btrfs"]').cells
    boots = {cell.number: kept_for_a_round(cell) for cell in cells}
    of_kernel = {cell.number: cell.levels["kernel"] for cell in cells}
    assert len(cells) == 18 and len(set(boots.values())) == 2
    assert len({(boots[number], of_kernel[number]) for number in boots}) == 2
    numbers = {boot: number for number, boot in enumerate(dict.fromkeys(boots.values()), start=1)}
    first = set()
    for number in range(1, 21):
        order = round_order(
            [*boots], number, 1, {cell: numbers[boot] for cell, boot in boots.items()}, dict.fromkeys(boots, 1)
        )
        kernels_in_order = [of_kernel[planned.cell] for planned in order]
        assert kernels_in_order in (["a"] * 9 + ["b"] * 9, ["b"] * 9 + ["a"] * 9)
        first.add(kernels_in_order[0])
    assert first == {"a", "b"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kernel": "debian:"}, 'nothing is no series of kernels: write "debian:6.1"'),
        ({"kernel": "debian:../x"}, "../x is no series of kernels"),
        ({"kernel": "debian:6.1", "modules": "/srv/modules"}, "modules goes with a kernel of your own"),
    ],
)
def test_what_names_no_kernel_of_debians_is_refused(keys: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Hardware(**keys)


def test_an_empty_path_is_none_so_that_a_parameter_can_leave_it_out() -> None:
    found = Hardware(kernel="", modules="")
    assert found.kernel is None and found.modules is None and series_of(f"debian:{OWN_SERIES}") == OWN_SERIES


@pytest.mark.needs("guests")
def test_a_kernel_that_is_not_unpacked_is_named_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    with pytest.raises(
        StudyError, match=r"kernel: Debian's kernel 6\.99 is not in .*; `storlab image kernel 6\.99` unpacks"
    ):
        run(kernels("a=debian:6.99"), tmp_path / "run")


@pytest.mark.needs("guests", "packages")
def test_two_kernels_of_debians_boot_once_a_round_each(tmp_path: Path) -> None:
    asyncio.run(unpack_debian_kernel("6.1"))
    small = ("memory=192M", "size=1M", "disk=512M", 'filesystems=["ext4", "xfs"]')
    outcome = run(kernels(*small, only=("load=buffered",)), tmp_path / "run")
    assert outcome.ending == "complete"
    records = list(outcome.folder.records())
    booted = {(record.levels["kernel"], record.block, record.guests["vm"]["kernel"]) for record in records}
    assert len(records) == 4 and len(booted) == 2, "two file systems in one boot of each"
    assert {(kernel, release[:4]) for kernel, _, release in booted} == {("a", "6.1."), ("b", "6.12")}
    assert {record.guests["vm"]["boot"] for record in records} == {"cold"}
    metrics = outcome.tables.frame("metrics").filter(
        pl.col("source") == "probe:folios", pl.col("metric") == "folio.size"
    )
    sizes = {(row["kernel"], row["fs"]): float(str(row["value"])) for row in _with_levels(metrics, records)}
    assert sizes["b", "xfs"] > 2 * sizes["b", "ext4"], "XFS has large folios, and ext4 has none before 6.16"


@pytest.mark.needs("guests")
def test_the_probes_of_memory_and_disks_watch_a_guest(tmp_path: Path) -> None:
    (tmp_path / "nvme.toml").write_text(NVME)
    outcome = run(load_study(tmp_path / "nvme.toml"), tmp_path / "run")
    assert outcome.ending == "complete"
    frame = outcome.tables.frame("metrics").filter(pl.col("node").is_null())
    found = {(row["source"], row["metric"]): row["value"] for row in frame.iter_rows(named=True)}
    assert 0 < found["probe:nvme", "temperature"] < 100, "QEMU's disks are as warm as a real one"
    assert found["probe:nvme", "media.errors"] == 0
    assert found["probe:folios", "cached.bytes"] >= 1 << 20
    assert 0 <= found["probe:fragmentation", "unusable.order-9"] <= 1


def _with_levels(metrics: pl.DataFrame, records: list[TrialRecord]) -> list[dict[str, object]]:
    levels = {record.trial: record.levels for record in records}
    rows = metrics.filter(pl.col("node").is_null()).iter_rows(named=True)
    return [row | levels[row["trial"]] for row in rows]


over_ssh = pytest.mark.needs("root", "ssh", "sshd", "unshare")
STUDY = """
primary = "elapsed"
repeat = {{ until = "max", min = 2, max = 2 }}
[probes]
[factors]
kernel = ["6.99.0-a", "6.99.0-b"]
size = ["1", "2"]
[nodes.far]
kind = "ssh"
hosts = ["lab1"]
boot = "{boot}"
console = "{console}"
kernel = "{{kernel}}"
stack = [{stack}]
[workload.load]
on = "far"
command = {{ argv = ["sh", "-c", "{load}", "load", "{{size}}"] }}
"""
OWN = """
printf '#!/bin/sh\\ntouch /tmp/reboot\\n' >/run/own; chmod 755 /run/own; mount --bind /run/own /usr/bin/systemctl
"""
KERNELS = {"6.99.0-a", "6.99.0-b"}


@pytest.fixture
def machines(lab: Laboratory) -> Iterator[Hosts]:
    with hosts(lab.folder / "hosts", 1, [lab.scratch]) as made:
        lab.environment |= made.environment
        yield made
    for left in lab._leftovers():  # cgroups are this machine's: a boot does not empty them, as it would elsewhere
        if left.startswith("cgroup ") and left.endswith("-far"):
            Path(left.removeprefix("cgroup ")).rmdir()


def console(folder: Path, feed: Path) -> str:
    feed.touch()
    path = folder / "console"
    path.write_text(f"#!/bin/sh\nexec tail -n +1 -f {feed}\n")
    path.chmod(0o755)
    return str(path)


def rebooting(machines: Hosts, folder: Path) -> threading.Thread:
    """Its own ``reboot`` brings the machine back with its usual kernel, once: for as long as it is up, it is that."""
    asked = folder / "asked"

    def wait() -> None:
        host = machines["lab1"]
        while not (host.tmp / "reboot").exists():
            if asked.exists():
                return
            threading.Event().wait(0.1)
        (host.tmp / "reboot").unlink()
        machines.reboot("lab1")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@over_ssh
def test_cells_of_one_kernel_share_a_boot_and_each_kernel_boots_once_a_round(lab: Laboratory, machines: Hosts) -> None:
    asked: list[str] = []

    def obey(name: str, release: str) -> None:
        asked.append(release)
        machines.reboot(name, release)
        # Its own way to boot again, as systemd has it.
        machines[name].run("sh", "-c", OWN)

    thread = rebooting(machines, lab.folder)
    with booting(lab.folder, obey) as program:
        text = STUDY.format(
            stack=ON_LOOP,
            boot=program,
            console=console(lab.folder, lab.folder / "feed"),
            load="cat /proc/sys/kernel/osrelease",
        )
        # Unconfined: a confined load has a /proc of its own, in which this machine's kernel is not another's.
        result = ended(lab.start_run(text, "--unconfined"), 400)
    assert result.status == 0, str(result)
    records = sorted(lab.records(), key=lambda record: record.trial)
    assert [record.status for record in records] == ["done"] * 8
    for record in records:
        raw = lab.out / "trials" / f"{record.trial:04}" / "far" / "load" / "stdout"
        assert raw.read_text().strip() == record.levels["kernel"] == record.guests["far"]["kernel"]
    boots = {(record.round, record.levels["kernel"], record.guests["far"]["boot_id"]) for record in records}
    assert len(boots) == len({boot for _, _, boot in boots}) == 4, "two sizes in each boot, two boots a round"
    assert len(asked) == 4 and {*asked[:2]} == {*asked[2:]} == KERNELS
    thread.join(60)
    assert not thread.is_alive() and "6.99" not in machines["lab1"].run("cat", "/proc/sys/kernel/osrelease")


@over_ssh
def test_programs_of_a_study_are_not_run_without_leave(lab: Laboratory, machines: Hosts) -> None:
    text = STUDY.format(stack=ON_LOOP, boot="/srv/boot", console="/srv/console", load="true")
    result = ended(lab.start_run(text, wrapper=CONTROLLER, trusted=False), 120)
    assert result.status == 2 and "--allow code=/srv/boot" in result.stderr, str(result)


@over_ssh
def test_a_panic_on_the_console_is_why_a_trial_failed(lab: Laboratory, machines: Hosts) -> None:
    feed, booted = lab.folder / "feed", threading.Event()

    def obey(name: str, release: str) -> None:
        machines.reboot(name, release)
        booted.set()

    def panic() -> None:
        with feed.open("a") as said:
            said.write("[ 9.1] Kernel panic - not syncing: Fatal exception\n")
        # A machine that panics closes no connection: it is missed long after its console said so.
        assert wait_until(lambda: any("panic" in log.read_text() for log in lab.out.rglob("console.log")), 60)
        machines.reboot("lab1")

    with booting(lab.folder, obey) as program:
        load = "sleep 3600"
        text = STUDY.format(stack=ON_LOOP, boot=program, console=console(lab.folder, feed), load=load)
        process = lab.start_run(text, "--rounds", "1", "--only", "size=1", "--only", "kernel=6.99.0-a")
        assert booted.wait(100)
        assert wait_until(lambda: "sleep 3600" in machines["lab1"].processes(), 100)
        panic()
        result = ended(process, 200)
    (record,) = lab.records()
    assert record.status == "failed" and record.reason is not None, str(result)
    assert "the kernel of far panicked: Fatal exception" in record.reason
