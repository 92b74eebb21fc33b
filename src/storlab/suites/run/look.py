"""What a guest has of a suite: its files and users, runfiles, expected results, and programs that tests lack."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from storlab.errors import ParseError, UserError
from storlab.suites.adapters.base import Adapter
from storlab.suites.calls import LIBRARIES, by_program, functions_that_call, parse_calls, pattern_of
from storlab.suites.groups import FIND, Installed, parse_find
from storlab.suites.model import Expectations, Suite
from storlab.suites.places.place import SuiteGuest
from storlab.suites.run.own_files import MOST_RUNFILE, own_runfile
from storlab.suites.runfile import Runfile

_MOST_LIBRARIES = 16 * 1024**2  # bytes of all; those of ZFS have 250 KiB


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
    missing = tuple(guest.variables.get("STORLAB_MISSING", "").split())
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


async def lacking_programs(guest: SuiteGuest, suite: Suite, adapter: Adapter) -> dict[str, list[str]]:
    """Programs that the suite knows and the guest lacks → the tests that seem to call them, by a look at their text.

    A test without its program fails or, worse, passes: ``log_mustnot`` takes "not found" for the failure it wants.
    """
    missing = guest.variables.get("STORLAB_MISSING", "").split()
    folders = sorted({posixpath.dirname(test.path) for group in suite.groups for test in group.tests})
    if not missing or not folders:
        return {}
    named = [word for name in LIBRARIES for word in ("-o", "-name", name)][1:]
    libraries = await guest.node.run(
        ["find", *_trees(adapter), "-type", "f", "(", *named, ")", "-exec", "cat", "{}", "+"],
        check=False,
        max_output=_MOST_LIBRARIES,
    )
    needed = {program: {program} for program in missing}
    needed |= functions_that_call(libraries.stdout.decode(errors="replace"), missing)
    found = await guest.node.run(["grep", "-noE", "-d", "skip", pattern_of(needed), "-r", "--", *folders], check=False)
    calls = parse_calls(found.stdout.decode(errors="replace").splitlines(), list(needed))
    programs = {file: set[str]().union(*(needed[name] for name in called)) for file, called in calls.items()}
    return by_program(suite, programs)
