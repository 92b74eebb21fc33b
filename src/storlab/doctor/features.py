"""Whether this machine has what is looked for: features of the kernel, and programs with their versions.

A feature is built in, loaded, or a module that could be loaded; nothing is loaded.
"""

from __future__ import annotations

import platform
import re

from storlab.doctor.check import Check, missing, ok, warn
from storlab.doctor.machine import Machine
from storlab.nodes.needs import PROGRAMS

_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
REMEDY = f"apt-get install linux-image-{_DEBIAN.get(platform.machine(), platform.machine())}, and boot it"
_VERSION = re.compile(r"\d+\.\d+[\w.+~-]*")


def has_feature(machine: Machine, module: str, option: str) -> str | None:
    """How the kernel has it: ``built in``, ``loaded``, ``module``; ``None`` where it hasn't.

    ``option`` is the name in the kernel's configuration, which is asked because what is built in leaves few traces.
    """
    if machine.kernel_options.get(option) == "y":
        return "built in"
    loaded = {line.split(" ", 1)[0] for line in (machine.read("/proc/modules") or "").splitlines()}
    if module.replace("-", "_") in loaded:
        return "loaded"
    if machine.run(["modprobe", "--dry-run", "--quiet", module]).status == 0:
        return "module"
    return None


def why_not(machine: Machine, option: str) -> str:
    """Why a feature is missing, in words."""
    options = machine.kernel_options
    if options and option not in options:
        return f"this kernel ({machine.release}) was built without it"
    if not machine.exists(f"/lib/modules/{machine.release}"):
        return f"there are no modules for this kernel ({machine.release}) in /lib/modules"
    return f"this kernel ({machine.release}) has no such module"


def feature(machine: Machine, group: str, name: str, module: str, option: str, tools: str = "") -> Check:
    """A kernel feature alone; ``tools`` are told beside it."""
    how = has_feature(machine, module, option)
    if how is None:
        return missing(name, group, why_not(machine, option), REMEDY)
    return ok(name, group, how + (f", {tools}" if tools else ""))


def feature_with_program(
    machine: Machine, group: str, name: str, module: str, option: str, program: str, package: str
) -> Check:
    """A kernel feature that is of use only with its program."""
    found = feature(machine, group, name, module, option, program)
    if found.status == "ok" and machine.which(program) is None:
        return missing(name, group, f"the kernel has it, but {program} is not installed", f"apt-get install {package}")
    return found


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
