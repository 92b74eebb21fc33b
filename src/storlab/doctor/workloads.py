"""Programs that put load on storage: fio with its engines and io_uring, databases and others with their versions."""

from __future__ import annotations

import errno
import os
import re

from storlab.doctor.machine import Check, Machine, missing, ok, program, warn
from storlab.images.mysql import MYSQL
from storlab.nodes.needs import UNPACKED_MYSQL, remedy

GROUP = "fio"
OTHERS = "Workloads and databases"
_WANTED = ("io_uring", "libaio", "posixaio", "psync", "pvsync2", "mmap", "nbd", "nfs", "libblkio")
_IO_URING_SETUP = 425  # the same on every architecture since Linux 5.1


def checks(machine: Machine) -> list[Check]:
    """fio."""
    return [program(machine, GROUP, "fio", "fio"), engines(machine), io_uring(machine)]


def engines(machine: Machine) -> Check:
    """Which of the engines that studies use this fio was built with."""
    asked = machine.run(["fio", "--enghelp"])
    if asked.status != 0:
        return missing("engines", GROUP, asked.first_line, "apt-get install fio")
    built = set(asked.text.split())
    has = ", ".join(name for name in _WANTED if name in built)
    lacks = ", ".join(name for name in _WANTED if name not in built)
    return ok("engines", GROUP, f"{has}{lacks and f'; not {lacks}'}")


def io_uring(machine: Machine) -> Check:
    """io_uring, by setting up a ring of one entry: a sysctl, a container or an old kernel may forbid it."""
    result = machine.syscall(_IO_URING_SETUP, 1, bytes(120))  # struct io_uring_params, all zero
    if result is None:
        return warn("io_uring", GROUP, "not tried: python3 is not installed there")
    if result >= 0:
        return ok("io_uring", GROUP, "a ring could be set up")
    if result == -errno.ENOSYS:
        return missing("io_uring", GROUP, f"this kernel ({machine.release}) has none, or a container hides it")
    setting = machine.read("/proc/sys/kernel/io_uring_disabled")
    if setting not in (None, "0"):
        says = f"forbidden: kernel.io_uring_disabled is {setting}"
        return missing("io_uring", GROUP, says, "sysctl kernel.io_uring_disabled=0")
    return warn("io_uring", GROUP, f"refused: {os.strerror(-result)}", "allow it in the container's seccomp profile")


def others(machine: Machine) -> list[Check]:
    """The programs beside fio."""
    postgres = machine.glob("/usr/lib/postgresql", "*/bin/postgres")
    return [
        program(machine, OTHERS, "sysbench", "sysbench"),
        program(machine, OTHERS, "mariadbd", "mariadb-server"),
        *([mysql(machine)] if machine.here else []),
        program(machine, OTHERS, "postgres", "postgresql", path=postgres[-1] if postgres else ""),
        # It prints its version only below its usage, which it prints for an option that it does not know.
        program(machine, OTHERS, "bonnie++", "bonnie++", "-h"),
    ]


def mysql(machine: Machine) -> Check:
    """A MySQL server, which no stable Debian has."""
    if (words := MYSQL.words) is None:
        return missing("mysqld", OTHERS, "not unpacked", remedy(UNPACKED_MYSQL))
    version = re.search(r"(?<=Ver )\S+", machine.run([*words, "--version"]).first_line)
    return ok("mysqld", OTHERS, f"{version[0] if version else 'of no known version'}, unpacked by Storlab")
