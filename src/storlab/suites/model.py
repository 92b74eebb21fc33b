"""What a suite consists of, and what came of it: groups, tests, attempts, outcomes.

A group has a script that runs before its tests, one after them, and one after a test that was killed. Every script is
known by the path that its runner prints; the file that is executed may have an extension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from storlab.base.record import Count, Number, Seconds

Role = Literal["pre", "test", "post", "failsafe"]


class Outcome(StrEnum):
    """What came of a test. The last two are Storlab's own; runners know the others."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"
    KILLED = "KILLED"
    """Ended at its time-out."""
    CRASHED = "CRASHED"
    """The guest was lost while it ran."""
    HUNG = "HUNG"
    """Not even SIGKILL ended it, so its guest was given up."""

    @property
    def classic(self) -> Outcome:
        """In the words of runners that know no guests."""
        return Outcome.KILLED if self in LOST else self


LOST = frozenset({Outcome.CRASHED, Outcome.HUNG})
"""With which a guest was lost."""


@dataclass(frozen=True)
class Script:
    """A file to execute, or a shell's line to ``run``. ``path`` is how it is called, ``user`` who runs it: empty for
    whoever runs the suite.
    """

    path: str
    user: str
    program: str = ""  # the file itself; the path where it is empty
    line: int | None = None  # of the runfile
    run: str = ""

    @property
    def file(self) -> str:
        return self.program or self.path


@dataclass(frozen=True)
class Group:
    """Tests that share what was set up for them. ``name`` is unique in its suite.

    ``timeout``: seconds for each of its scripts; ``None`` for as long as they take.
    """

    name: str
    tests: tuple[Script, ...]
    pre: Script | None = None
    post: Script | None = None
    failsafe: Script | None = None
    timeout: float | None = 60.0
    tags: tuple[str, ...] = ()
    identifier: str = ""
    folder: Folder = ""  # where the output of its scripts lies, below that of the run
    line: int | None = None
    iteration: int = 1


@dataclass(frozen=True)
class Absent:
    """Something that a suite asks for and that can't be run. ``tests``: how many tests have no result for it.

    ``paths`` of these tests and ``tags`` of their group, if they are known: what is chosen by them is asked for.
    """

    where: str  # FILE:LINE
    what: str
    tests: int = 1
    paths: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Suite:
    """All groups, in the order in which their runner would run them."""

    name: str
    groups: tuple[Group, ...]
    absent: tuple[Absent, ...] = ()
    quiet: bool = False  # only tests that don't pass are printed
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(group.tests) for group in self.groups)


_TESTS = re.compile(r"/zfs-tests/tests/(?:functional|perf/regression)/(\S+)")
_Text = Annotated[str, Meta(max_length=64 * 1024)]
_Path = Annotated[str, Meta(pattern=r"^[^\x00\n]{1,4096}\Z")]
Folder = Annotated[str, Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|\Z))[^\x00\n]{0,8192}\Z")]
"""Of a run, below its own: it leads nowhere else."""
_WORDS = 2000  # characters of what a guest says that are kept
_MOST_LEAKS = 1000


class Leak(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a group changed and did not put back. ``by``: the script after which it was first so."""

    kind: str  # process, pool, parameter, mount, user, group, device, swap, memory, service
    what: _Text
    by: _Path


class Attempt(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One script that ran, or was skipped, and what came of it."""

    group: _Path
    path: _Path
    role: Role
    outcome: Outcome
    started: datetime
    elapsed: Seconds
    user: str = ""  # who ran it, by name
    number: Number = 1  # which attempt it was
    identifier: str = ""
    code: int | None = None
    signal: str | None = None
    cpu: Seconds = 0.0
    limit: Seconds | None = None  # its time-out
    scale: Seconds = 1.0  # of that, where it is slow and does not hang, as its guest was measured
    guest: str = ""  # where it ran; empty where it did not
    console: str = ""  # folder of that very guest, as others of the same name may take its place
    reason: _Text = ""  # why it was skipped, killed or lost
    folder: Folder = ""  # with its output, below that of the run
    dropped: Count = 0  # bytes of its output that were not kept
    kept: list[Folder] = []  # folders that it left, in its own
    leaks: list[Leak] = []  # of the last script of a group: what all of them changed and did not put back

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.path

    def bounded(self) -> Attempt:
        """The same with no more of a guest's words than a record holds."""
        leaks = [replace(leak, what=_shortened(leak.what)) for leak in self.leaks[:_MOST_LEAKS]]
        return replace(self, reason=_shortened(self.reason), leaks=leaks)


def _shortened(text: str) -> str:
    return text if len(text) <= _WORDS else f"{text[:_WORDS]} …"


@dataclass(frozen=True)
class Expectation:
    """An outcome that is expected of a test other than PASS. ``always``: PASS would be news."""

    test: str
    outcome: Outcome
    reason: str
    always: bool


@dataclass(frozen=True)
class Expectations:
    """What is expected of which test, by its path below the suite's tests; of all others, that they pass."""

    known: dict[str, Expectation] = field(default_factory=dict)  # outcomes that always come
    maybe: dict[str, Expectation] = field(default_factory=dict)  # outcomes that may come
    source: str = ""


def report_name(path: str) -> str:
    """How ``zts-report.py`` calls a test: its path below the suite's tests; elsewhere, the path itself."""
    found = _TESTS.search(path)
    return found[1] if found else path


def test_name(path: str, testdir: str) -> str:
    """How reports call a test: its path below the suite's tests, or below the folder of one's own."""
    return report_name(path).removeprefix(f"{testdir}/")


class SuiteEnvironment(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The guests of a run, or whatever a console comes from: of that, nothing is known. ``modules``: name → version."""

    kernel: str = ""
    modules: dict[str, str] = {}
    image: str = ""
    cpus: Count = 0
    memory: Count = 0  # bytes
    accelerator: str = ""
    storlab: str = ""

    @property
    def parts(self) -> dict[str, str]:
        """By what results are grouped, in words; memory and Storlab's version are recorded only."""
        return {
            "kernel": self.kernel,
            "ZFS": self.modules.get("zfs", ""),
            "image": self.image,
            "CPUs": str(self.cpus) if self.cpus else "",
            "accelerator": self.accelerator,
        }

    def differences(self, other: SuiteEnvironment) -> str:
        """What is not as in another one, in words; empty where results of the two are alike."""
        pairs = ((name, value, other.parts[name]) for name, value in self.parts.items())
        return ", ".join(
            f"{name} {here or 'none'} and not {there or 'none'}" for name, here, there in pairs if here != there
        )

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(self.parts.values())

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.parts.items() if value) or "environment not recorded"


@dataclass(frozen=True)
class Try:
    """One try of a test. ``elapsed``: seconds; ``None`` if nothing says how long it took."""

    outcome: Outcome
    elapsed: float | None

    @property
    def passed(self) -> bool | None:
        """Whether it passed; ``None`` if it was skipped, which says nothing."""
        return None if self.outcome is Outcome.SKIP else self.outcome is Outcome.PASS


@dataclass(frozen=True)
class Gap:
    """What the log of a run leaves open: ``count`` tests, with their names if it has them.

    ``planned``: results that were announced and did not come; ``no summary``: it ends before the one of its runner.
    ``stray``: results out of their order, or without their parent's; ``no end``: of its last line; ``no section``: it
    names sections, but not that of all tests.
    """

    kind: Literal["no result", "planned", "bailed out", "no summary", "stray", "no end", "no section"]
    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ObservedRun:
    """One run. ``tests``: name → its tries, in order; ``asked``: tests that it was to run, whether or not they did.

    ``identity`` tells whether two are the same run under different names.
    """

    name: str
    identity: str
    started: datetime | None
    environment: SuiteEnvironment
    tests: Mapping[str, tuple[Try, ...]]
    asked: frozenset[str] = field(default_factory=frozenset)
    gaps: tuple[Gap, ...] = ()

    def first(self, test: str) -> Try | None:
        """The first try of a test, which is the one that counts: later ones are there only because it failed."""
        tries = self.tests.get(test)
        return tries[0] if tries else None
