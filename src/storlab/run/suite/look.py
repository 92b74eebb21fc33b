"""What a guest has of a suite: its files and users, runfiles, expected results, and programs that tests lack."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storlab.errors import ParseError, UserError
from storlab.run.suite.own_files import MOST_RUNFILE, own_runfile
from storlab.run.suite.places.place import SuiteGuest
from storlab.suite.adapters.base import Adapter
from storlab.suite.installed import FIND, Installed, parse_find
from storlab.suite.model import Expectations, Suite
from storlab.suite.runfile import Runfile

# Where a program's name stands when it is called: at the beginning of a command, or after a word that takes one.
_CALLED = (
    r"(^|[|&;(`!]|\$\(|\b(log_must|log_mustnot|log_must_busy|log_must_retry|log_neg|eval|if|then|else|do|while|until|"
    r"sudo|exec|xargs|command -v|is_global_zone|user_run [^ ]+))[[:space:]\"']*"
)
_SHARED = re.compile(r".*\.(kshlib|shlib|cfg)|(setup|cleanup)(\.ksh|\.sh)?")


@dataclass(frozen=True)
class Found:
    """A suite in a guest, or as one's own files are; what is expected of its tests."""

    suite: Suite
    runfiles: tuple[Runfile, ...]
    expectations: Expectations
    missing: tuple[str, ...] = ()  # programs that the suite knows and the guest lacks


async def find_suite(guest: SuiteGuest, adapter: Adapter, name: str, names: Sequence[str]) -> Found:
    """The suite that these names are: files of this machine, or what the image has. Raises ``UserError``."""
    node = guest.node
    listed = await node.run(["find", *_trees(adapter), *FIND], check=False)
    installed = parse_find(listed.stdout, await node.read_text("/etc/passwd"))
    runfiles: list[Runfile] = []
    for each in names:
        if (own := own_runfile(each)) is not None:
            runfiles.append(own)
        else:
            runfiles += [await _of_image(guest, adapter, path, installed) for path in _files(adapter, each)]
    suite = adapter.groups(name, runfiles, installed)
    missing = tuple(guest.environment.variables.get("STORLAB_MISSING", "").split())
    return Found(suite, tuple(runfiles), await _expectations(guest, adapter), missing)


def _trees(adapter: Adapter) -> list[str]:
    """The folders with all that a suite may have, none of them within another."""
    places = {*adapter.needs().tree, adapter.testdir}
    return sorted(place for place in places if not any(place.startswith(f"{other}/") for other in places))


def _files(adapter: Adapter, name: str) -> tuple[str, ...]:
    files = adapter.files(name)
    if files is None:
        raise UserError(f"there is no runfile {name}")
    return files


async def _of_image(guest: SuiteGuest, adapter: Adapter, path: str, installed: Installed) -> Runfile:
    try:
        data = await guest.node.read(path, MOST_RUNFILE)
    except FileNotFoundError:
        folder = posixpath.dirname(path)
        known = sorted(posixpath.basename(each) for each in installed.others if posixpath.dirname(each) == folder)
        offered = ", ".join(each.removesuffix(".run") for each in known if each.endswith(".run"))
        wanted = posixpath.basename(path).removesuffix(".run")
        raise UserError(
            f"there is no runfile {wanted}: name a file of yours, zts, zts-sanity, or one of the image's ({offered})"
        ) from None
    return Runfile(posixpath.basename(path), data.decode(errors="replace"))


async def _expectations(guest: SuiteGuest, adapter: Adapter) -> Expectations:
    if adapter.expectations_file is None:
        return Expectations()
    try:
        return adapter.expectations(await guest.node.read_text(adapter.expectations_file))
    except FileNotFoundError:
        return Expectations()
    except ParseError as error:
        raise UserError(f"what is expected of the tests cannot be read: {error}") from None


async def lacking_programs(guest: SuiteGuest, suite: Suite) -> dict[str, list[str]]:
    """Programs that the suite knows and the guest lacks → the tests that seem to call them, by a look at their text.

    A test without its program fails or, worse, passes: ``log_mustnot`` takes "not found" for the failure it wants.
    """
    missing = guest.environment.variables.get("STORLAB_MISSING", "").split()
    folders = sorted({posixpath.dirname(test.path) for group in suite.groups for test in group.tests})
    if not missing or not folders:
        return {}
    pattern = rf"{_CALLED}({'|'.join(map(re.escape, missing))})([[:space:];|&)`\"']|$)"
    found = await guest.node.run(["grep", "-noE", "-d", "skip", pattern, "-r", "--", *folders], check=False)
    calls = parse_calls(found.stdout.decode(errors="replace").splitlines(), missing)
    tests: dict[str, list[str]] = {}
    for group in suite.groups:
        for test in group.tests:
            folder = posixpath.dirname(test.path)
            shared = {
                p for file, ps in calls.items() if posixpath.dirname(file) == folder and _is_shared(file) for p in ps
            }
            for program in sorted(calls.get(test.file, set()) | shared):
                tests.setdefault(program, []).append(test.path)
    return tests


def _is_shared(file: str) -> bool:
    return _SHARED.fullmatch(posixpath.basename(file)) is not None


def parse_calls(lines: Iterable[str], programs: Sequence[str]) -> dict[str, set[str]]:
    """File → those of these programs that it seems to call, by what ``grep -noE`` printed of it."""
    calls: dict[str, set[str]] = {}
    for line in lines:
        file, _, rest = line.partition(":")
        words = re.split(r"[^\w.+-]+", rest.partition(":")[2])
        for program in programs:
            if program in words:
                calls.setdefault(file, set()).add(program)
    return calls
