"""What a suite wants of this machine: a file that somebody wrote, or the folder of an earlier run.

What tests do in guests is no want, as the guest is theirs. What is copied into it is one, and what it boots.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from storlab.base.errors import Problem, UserError
from storlab.base.reach import Found, Key, reaching
from storlab.run.permissions import Permissions, Want, each_once, refuse, unpermitted, want_of
from storlab.study.toml_text import line_of
from storlab.suites.bisect import Plan
from storlab.suites.records.folder import FILES, Here, OwnKernel
from storlab.suites.suite_file import SuiteFile

_CANDIDATE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/.:+_-]*")
"""What no shell and no program takes for anything but a name: it is put into words of commands."""


def wants_of_file(spec: SuiteFile, file: str) -> tuple[Want, ...]:
    return each_once(want_of(found, (), "", Path(file).parent) for found in reaching(spec))


def refuse_unpermitted_file(
    spec: SuiteFile, file: str, lines: Mapping[tuple[str | int, ...], int], permissions: Permissions
) -> None:
    """Raise ``StudyError`` for what a suite file wants and this command line does not permit, with what would."""

    def problem(key: Key, message: str) -> Problem:
        return Problem(".".join(map(str, key)), message, line_of(key, lines) if key else None)

    refuse(file, unpermitted(wants_of_file(spec, file), permissions), problem)


def wants_of_run(
    names: Sequence[str] = (), tests: Path | None = None, kernel: OwnKernel | None = None, here: Here | None = None
) -> tuple[Want, ...]:
    """What the folder of a run says of this machine: runfiles, a folder of tests, what guests boot, disks."""
    read: dict[str, str | None] = {f"runfiles.{number}": name for number, name in enumerate(names)}
    read["tests"] = None if tests is None else str(tests)
    for part in ("image", "modules", "rootfs", "tree"):
        read[f"kernel.{part}"] = None if kernel is None else getattr(kernel, part)
    found = [Found((key,), "read", value) for key, value in read.items() if value is not None]
    if here is not None:
        found += [Found(("here.disks",), "device", disk) for disk in (*here.disks, *here.wipe)]
        found += [Found(("here.files",), "write", here.files)] if here.files != FILES else []
    return _wants(found)


def refuse_unpermitted(file: Path, wants: Sequence[Want], permissions: Permissions) -> None:
    """The same for the file of an earlier run or bisection, of which nothing is believed."""

    def problem(key: Key, message: str) -> Problem:
        return Problem(".".join(map(str, key)), message)

    refuse(str(file), unpermitted(wants, permissions), problem)


def refuse_other_machine(named: str, here: Here | None) -> None:
    """Raise ``UserError`` where tests are to run on a machine that this command line does not name."""
    if here is not None and named != here.machine:
        raise UserError(
            f"the tests of this run are run on a machine itself, and not in guests (--here {here.machine}): say so "
            "again, if you trust its suite and who wrote it"
        )
    if here is None and named:
        raise UserError(f"--here {named}: the tests of this run are run in guests: leave it out")


def wants_of_bisection(plan: Plan) -> tuple[Want, ...]:
    """The commands that the file of a bisection names, with where they run; its repository, whose hooks git runs."""
    said = {"check": plan.check, "build": plan.build}
    at = f"cd {shlex.quote(plan.folder)} && "
    found = [Found((key,), "code", at + shlex.join(words)) for key, words in said.items() if words]
    found += [Found(("candidates",), "code", name) for name in plan.candidates if not _CANDIDATE.fullmatch(name)]
    found += [Found(("repository",), "code", plan.repository)] if plan.repository else []
    return _wants(found)


def _wants(found: Sequence[Found]) -> tuple[Want, ...]:
    return each_once(want_of(each, (), "", None) for each in found)
