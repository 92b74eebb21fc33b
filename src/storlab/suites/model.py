"""What a suite consists of, and what came of it: groups, tests, attempts, outcomes.

A group has a script that runs before its tests, one after them, and one after a test that was killed. Every script is
known by the path that its runner prints; the file that is executed may have an extension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from storlab.record import Count, Number, Seconds

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

    ``paths`` of these tests and ``tags`` of their group, where they are known: what is chosen by them is asked for.
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
