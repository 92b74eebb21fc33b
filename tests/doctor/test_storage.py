from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from storlab.doctor import kernel, workloads
from storlab.doctor.host import SCRATCH
from storlab.doctor.machine import (
    REMEDY,
    Machine,
    feature,
    feature_with_program,
    has_feature,
    program,
    version,
    why_not,
)

from .fake_machine import FakeMachine

LOOP = {"/dev/loop-control": ""}


def test_a_loop_device_that_was_made_is_detached() -> None:
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"})
    assert kernel.loop(machine).status == "ok"
    assert machine.ran[-1] == ["losetup", "--detach", "/dev/loop7"]


def test_a_loop_device_that_could_not_be_made_is_not_detached() -> None:
    machine = FakeMachine(LOOP, {"losetup": "losetup: cannot find an unused loop device!"})
    check = kernel.loop(machine)
    assert (check.status, check.says) == ("missing", "losetup: cannot find an unused loop device")
    assert len(machine.ran) == 1


def test_without_root_no_loop_device_is_tried() -> None:
    machine = FakeMachine(LOOP, {"losetup": "/dev/loop7"}, root=False)
    assert kernel.loop(machine).remedy == "run it as root, or with sudo"
    assert machine.ran == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_real_trial_leaves_no_loop_device_and_no_file() -> None:
    assert kernel.loop(Machine()).status == "ok"
    attached = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [path for path in attached if "storlab-doctor-" in path]
    assert not list(Path(SCRATCH).glob("storlab-doctor-*"))


def test_a_file_system_needs_kernel_and_tools() -> None:
    registered = {"/proc/filesystems": "nodev\tproc\n\txfs"}
    arguments = ("xfs", "CONFIG_XFS_FS", "mkfs.xfs", "xfsprogs")
    both = FakeMachine(registered, {"mkfs.xfs": "mkfs.xfs version 6.1.0"})
    assert kernel.filesystem(both, *arguments).says == "mkfs.xfs 6.1.0"
    assert kernel.filesystem(FakeMachine(registered), *arguments).remedy == "apt-get install xfsprogs"
    assert kernel.filesystem(FakeMachine(), *arguments).remedy == REMEDY


def test_a_module_that_could_be_loaded_counts_and_is_not_loaded() -> None:
    machine = FakeMachine(programs={"modprobe": ""})
    assert has_feature(machine, "nbd", "CONFIG_BLK_DEV_NBD") == "module"
    assert machine.ran == [["modprobe", "--dry-run", "--quiet", "nbd"]]


def test_a_feature_that_is_built_in_is_known_from_the_kernels_configuration() -> None:
    machine = FakeMachine(options={"CONFIG_BLK_DEV_NBD": "y"})
    assert feature(machine, "g", "nbd", "nbd", "CONFIG_BLK_DEV_NBD").says == "built in"


def test_a_loaded_module_is_found_though_its_name_is_written_with_a_hyphen() -> None:
    machine = FakeMachine({"/proc/modules": "nvme_tcp 1 0 - Live 0x0"})
    assert has_feature(machine, "nvme-tcp", "CONFIG_NVME_TCP") == "loaded"


def test_the_reason_tells_a_kernel_without_a_feature_from_one_whose_modules_are_gone() -> None:
    assert "built without it" in why_not(FakeMachine(options={"CONFIG_X": "y"}), "CONFIG_NBD")
    assert "no modules for this kernel" in why_not(FakeMachine(options={"CONFIG_NBD": "m"}), "CONFIG_NBD")
    with_modules = FakeMachine({f"/lib/modules/{FakeMachine.release}/modules.dep": ""})
    assert "no such module" in why_not(with_modules, "CONFIG_NBD")


def test_a_feature_is_missing_without_the_program_that_makes_use_of_it() -> None:
    loaded = {"/proc/modules": "nbd 1 0 - Live 0x0"}
    check = feature_with_program(FakeMachine(loaded), "g", "nbd", "nbd", "CONFIG_X", "nbd-client", "nbd-client")
    assert (check.status, check.remedy) == ("missing", "apt-get install nbd-client")


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("fio-3.33", "3.33"),
        ("mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu", "10.11.14-MariaDB-0+deb12u2"),
        ("\npostgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
        ("a program of few words", "a program of few words"),
        ("bonnie++: invalid option -- 'h'\nusage:\nbonnie++ [-d scratch-dir]\n\nVersion: 2.00a", "2.00a"),
    ],
)
def test_a_version_is_cut_out_of_what_a_program_prints(printed: str, number: str) -> None:
    assert version(FakeMachine(programs={"x": printed}), "x") == number


def test_a_missing_program_has_its_package_as_remedy() -> None:
    check = program(FakeMachine(), "g", "mariadbd", "mariadb-server")
    assert (check.status, check.remedy) == ("missing", "apt-get install mariadb-server")


def test_engines_that_fio_lacks_are_named() -> None:
    machine = FakeMachine(programs={"fio": "Available IO engines:\n\tlibaio\n\tpsync\n\tio_uring"})
    assert workloads.engines(machine).says == (
        "io_uring, libaio, psync; not posixaio, pvsync2, mmap, nbd, nfs, libblkio"
    )


def test_io_uring_that_a_sysctl_forbids_names_it() -> None:
    forbidden = FakeMachine({"/proc/sys/kernel/io_uring_disabled": "2"}, syscall=-errno.EPERM)
    assert workloads.io_uring(forbidden).remedy == "sysctl kernel.io_uring_disabled=0"
    in_container = FakeMachine({"/proc/sys/kernel/io_uring_disabled": "0"}, syscall=-errno.EPERM)
    assert (workloads.io_uring(in_container).status, workloads.io_uring(in_container).remedy[:8]) == (
        "warn",
        "allow it",
    )
    assert workloads.io_uring(FakeMachine(syscall=-errno.ENOSYS)).status == "missing"


def test_mysql_is_unpacked_or_the_command_that_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = workloads.mysql(FakeMachine())
    assert (check.status, check.says, check.remedy) == ("missing", "not unpacked", "storlab image mysql")
