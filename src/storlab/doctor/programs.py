"""Programs that Storlab can drive, with their versions: databases, file-system and tracing tools."""

from __future__ import annotations

import re

from storlab.doctor.check import Check, missing, ok, warn
from storlab.doctor.machine import Machine
from storlab.nodes.programs import PROGRAMS

_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")


def version(machine: Machine, program: str, *arguments: str) -> str:
    """The version that a program prints, without what else it prints; its first line where there is none."""
    asked = arguments or (PROGRAMS[program].version if program in PROGRAMS else ("--version",))
    said = machine.run([program, *asked]).first_line
    # mariadbd: "Ver 10.11.14-MariaDB-…": what follows the number is the packager's.
    found = _VERSION.search(said)
    return found[0] if found else said


def program(
    machine: Machine, group: str, name: str, package: str, *arguments: str, what: str = "", path: str = ""
) -> Check:
    """A program that is driven as it stands; ``what`` it is for, ``path`` where it is not on PATH."""
    where = path or name
    if machine.which(where) is None:
        return missing(name, group, f"not installed{what and f'; {what}'}", f"apt-get install {package}")
    said = version(machine, where, *arguments)
    return ok(name, group, said) if said else warn(name, group, "installed, but prints no version")


GROUP = "Workloads and databases"


def checks(machine: Machine) -> list[Check]:
    """The programs beside fio that put load on storage."""
    postgres = machine.glob("/usr/lib/postgresql", "*/bin/postgres")
    return [
        program(machine, GROUP, "sysbench", "sysbench"),
        program(machine, GROUP, "mariadbd", "mariadb-server"),
        program(machine, GROUP, "postgres", "postgresql", path=postgres[-1] if postgres else ""),
        # It prints its version only as the head of its usage.
        program(machine, GROUP, "bonnie++", "bonnie++", "-h"),
    ]
