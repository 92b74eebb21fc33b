"""What a run is asked for, and what it will run, by a look into its first guest: groups, order, missing programs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from random import Random

from storlab.base.errors import ParseError, UserError
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.suites.adapters.base import Adapter
from storlab.suites.adapters.check import Check, CheckFile
from storlab.suites.adapters.zts import Zts
from storlab.suites.expectations import OwnEntry
from storlab.suites.groups import FIND, Installed, parse_find
from storlab.suites.model import Expectations, Suite
from storlab.suites.places.place import Place, SuiteGuest
from storlab.suites.records.folder import CONSOLES, Here, OwnKernel, SuiteRecord, who_lacks, write_suite_record
from storlab.suites.run.own_files import MOST_RUNFILE, own_runfile
from storlab.suites.run.record import environment_of
from storlab.suites.runfile import Runfile
from storlab.suites.selection import EVERYTHING, Selection, repeated, replayed, select, shuffled
from storlab.suites.suite_file import CPUS, MEMORY


@dataclass(frozen=True)
class Asked:
    """What a run of a suite is to do. ``names``: runfiles, or suites; ``tests``: a folder with one's own tests.

    ``here``: run them on this machine, and not in guests; ``seed``: of a random order; ``order``: that of an earlier
    run; ``limit``: seconds after which no test is begun.
    """

    names: tuple[str, ...]
    selection: Selection = EVERYTHING
    tests: Path | None = None
    guests: int = 1
    cpus: int = CPUS
    memory: int = MEMORY
    scale: float | None = None
    retries: int = 0
    allow_missing: bool = False
    times: Mapping[tuple[str, str], float] | None = None
    adapter: Adapter | None = None  # by default what the names call for
    title: str = ""
    seed: int | None = None
    order: tuple[tuple[str, str], ...] = ()
    until_failure: bool = False
    limit: float | None = None
    own: tuple[OwnEntry, ...] = ()  # what the user expects
    iterations: int = 0  # no more than these, if not 0; all of them, unless until a failure
    here: Here | None = None
    kernel: OwnKernel | None = None  # that guests boot; by default the image's
    hold: bool = False  # a shell in the guest of each test that fails
    debug: bool = False  # and what a debugger attaches to
    permissions: Permissions = NO_PERMISSIONS  # of what its files name

    @property
    def name(self) -> str:
        return self.title or ",".join(self.names)


def in_order(suite: Suite, asked: Asked) -> Suite:
    """The suite in the order that was asked for, and so many times.

    Raises ``UserError`` if an earlier run's order has nothing of it.
    """
    if asked.order:
        suite = replayed(suite, asked.order)
    if asked.seed is not None:
        suite = replace(suite, groups=tuple(shuffled(suite.groups, Random(asked.seed))))
    return suite if asked.until_failure else repeated(suite, asked.iterations)


LIBRARIES = ("*.shlib", "*.kshlib")
"""The names of files with functions for others."""

# Where a command's name stands: first, or after a word that takes a command. The same to grep -E and to Python.
_BEFORE = (
    r"(^|[|&;(`!]|\$\(|\b(log_must|log_mustnot|log_must_busy|log_must_retry|log_neg|eval|if|then|else|do|while|until|"
    r"sudo|exec|xargs|command -v|is_global_zone|user_run [^ " + "\t\"']+))[ \t\"']*"
)
_AFTER = "([ \t;|&)`\"']|$)"
_CALL = re.compile(rf"{_BEFORE}(?=([\w.+-]+){_AFTER})", re.MULTILINE)  # of anything; in a call, another may begin
_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+([\w-]+)|([\w-]+)[ \t]*\([ \t]*\))", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_RUN_FOR_ALL = re.compile(r".*\.cfg|(setup|cleanup)(\.ksh|\.sh)?")  # of a folder's tests


def pattern_of(names: Iterable[str]) -> str:
    """An extended regular expression, for ``grep -E`` too, of a call of one of these."""
    return f"{_BEFORE}({'|'.join(sorted(map(re.escape, names)))}){_AFTER}"


def functions_that_call(libraries: str, programs: Iterable[str]) -> dict[str, set[str]]:
    """Function → those of the programs that it calls, itself or by other functions. ``libraries``: their whole text."""
    bodies = _bodies(_COMMENT.sub("", libraries))
    callers: dict[str, set[str]] = {}
    for function, body in bodies.items():
        for call in _CALL.finditer(body):
            callers.setdefault(call[3], set()).add(function)
    needed: dict[str, set[str]] = {}
    for program in programs:
        found, left = {program}, [program]
        while left:
            further = callers.get(left.pop(), set()) - found
            found |= further
            left += further
        for function in found & bodies.keys():
            needed.setdefault(function, set()).add(program)
    return {function: needed[function] for function in bodies if function in needed}


def _bodies(text: str) -> dict[str, str]:
    """Function → what stands from its name to the next function's. Of one name, all."""
    begins = [*_FUNCTION.finditer(text)]
    bodies: dict[str, str] = {}
    for begin, following in zip_longest(begins, begins[1:]):
        name = begin[1] or begin[2]
        bodies[name] = bodies.get(name, "") + "\n" + text[begin.end() : following and following.start()]
    return bodies


def parse_calls(lines: Iterable[str], names: Sequence[str]) -> dict[str, set[str]]:
    """File → those of these names that it seems to call, by what ``grep -noE`` printed of it."""
    calls: dict[str, set[str]] = {}
    for line in lines:
        file, _, rest = line.partition(":")
        words = re.split(r"[^\w.+-]+", rest.partition(":")[2])
        if called := set(words).intersection(names):
            calls.setdefault(file, set()).update(called)
    return calls


def by_program(suite: Suite, calls: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Program → the tests that call it, or whose folder's set-up, clean-up or settings do."""
    tests: dict[str, list[str]] = {}
    for group in suite.groups:
        for test in group.tests:
            folder = posixpath.dirname(test.path)
            beside = ((posixpath.split(file), called) for file, called in calls.items())
            shared = [called for (place, name), called in beside if place == folder and _RUN_FOR_ALL.fullmatch(name)]
            for program in sorted(calls.get(test.file, set()).union(*shared)):
                tests.setdefault(program, []).append(test.path)
    return tests


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
        elif (files := adapter.files(each)) is not None:
            runfiles += [await _of_image(guest, path, installed) for path in files]
        else:
            raise UserError(f"there is no runfile {each}")
    suite = adapter.groups(name, runfiles, installed)
    missing = tuple(guest.variables.get("STORLAB_MISSING", "").split())
    return Found(suite, tuple(runfiles), await _expectations(guest, adapter), missing)


def _trees(adapter: Adapter) -> list[str]:
    """The folders with all that a suite may have, none of them within another."""
    places = {*adapter.needs().tree, adapter.testdir}
    return sorted(place for place in places if not any(place.startswith(f"{other}/") for other in places))


async def _of_image(guest: SuiteGuest, path: str, installed: Installed) -> Runfile:
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


async def plan(asked: Asked, place: Place) -> tuple[SuiteRecord, SuiteGuest]:
    name = place.name(1)
    console = f"001-{name}"
    guest = await place.open(name, place.folder / CONSOLES / console)
    guest.console = console
    try:
        return await _planned(asked, place, guest), guest
    except BaseException:
        await place.close(guest)
        raise


async def _planned(asked: Asked, place: Place, guest: SuiteGuest) -> SuiteRecord:
    found = await find_suite(guest, place.adapter, asked.name, asked.names)
    suite = in_order(select(found.suite, asked.selection, asked.times), asked)
    lacking = await lacking_programs(guest, suite, place.adapter)
    if lacking and not asked.allow_missing:
        raise UserError(refusal(lacking, who_lacks(asked.here)))
    record = SuiteRecord(
        name=asked.name,
        runner=place.adapter.runner,
        groups=suite.groups,
        runfiles=found.runfiles,
        testdir=place.adapter.testdir,
        tests=str(asked.tests.resolve()) if asked.tests is not None else None,
        absent=suite.absent,
        expectations=found.expectations,
        lacking=lacking,
        notes=suite.notes,
        quiet=suite.quiet,
        guests=asked.guests,
        cpus=asked.cpus,
        memory=asked.memory,
        scale=asked.scale,
        retries=asked.retries,
        environment=await environment_of(guest, place),
        zts=place.adapter.options if isinstance(place.adapter, Zts) else None,
        variables=dict(guest.variables),
        check=place.adapter.options if isinstance(place.adapter, Check | CheckFile) else None,
        adapter=place.adapter.name,
        seed=asked.seed,
        replayed=bool(asked.order),
        until_failure=asked.until_failure,
        iterations=asked.iterations,
        own=asked.own,
        here=await place.recorded(),
        kernel=asked.kernel,
        share=asked.selection.share,
    )
    write_suite_record(place.folder, record)
    return record


def refusal(lacking: Mapping[str, list[str]], who: str) -> str:
    each = "; ".join(f"{program}: {_some(tests)}" for program, tests in sorted(lacking.items()))
    return (
        f"{who} lacks programs that tests seem to call ({each}). Without them a test fails or, worse, "
        "passes: leave such tests out with --exclude, or run them all the same with --allow-missing"
    )


def _some(tests: list[str]) -> str:
    names = ["/".join(test.split("/")[-2:]) for test in tests[:3]]
    return ", ".join(names) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")
