"""What a format of suites is to those who run it: four functions, which know no guests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from storlab.suites.installed import Installed
from storlab.suites.model import Expectations, Outcome, Script, Suite
from storlab.suites.runfile import Runfile


@dataclass(frozen=True)
class Needs:
    """What a guest must have for a suite.

    ``disks`` of ``disk_size`` bytes each are the suite's own, ``blank``: empty for each group, in guests; ``files``:
    bytes of a file system on a disk at ``place``.
    ``tree``: folders in the image that have the suite. ``set_up``: a shell script that is run once as root, with
    ``DISKS``, ``FILEDIR`` and what is ``given``, and that prints the environment of all scripts as ``env -0`` does.
    """

    modules: tuple[str, ...]
    programs: tuple[str, ...]
    disks: int
    disk_size: int
    files: int
    place: str
    udev: bool
    tree: tuple[str, ...]
    set_up: str
    given: Mapping[str, str]
    blank: bool = False


@dataclass(frozen=True)
class Environment:
    """What ``set_up`` printed: variables for all scripts."""

    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """How a script is executed. ``keep``: files that it may leave, which are kept with its output.

    ``folders``: patterns of folders in ``cwd`` that it may leave; they are kept with its output, and removed there.
    ``evidence``: a pattern of files in them, without one of which a test that measures has measured nothing.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    cwd: str
    keep: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    evidence: str = ""


@dataclass(frozen=True)
class Judged:
    """What came of a script, and why where its output says so."""

    outcome: Outcome
    reason: str = ""


class Adapter(Protocol):
    """A format of suites."""

    @property
    def name(self) -> str:
        """As a suite file calls it."""

    @property
    def testdir(self) -> str:
        """The folder in the guest that relative names are below."""

    @property
    def runner(self) -> str:
        """The user who runs the suite."""

    def files(self, name: str) -> tuple[str, ...] | None:
        """Which files of the image are the suite of this name; ``None`` where the name is none of its."""

    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        """The suite that these files are. Raises ``UserError`` with file and line."""

    def launch(self, script: Script, environment: Environment) -> Launch:
        """How to execute a script."""

    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> Judged:
        """What a script's exit status, ``None`` where a signal ended it, and what it printed mean."""

    def needs(self) -> Needs:
        """What a guest must have."""

    @property
    def expectations_file(self) -> str | None:
        """The file of the image that says which results are expected."""

    def expectations(self, source: str) -> Expectations:
        """What that file says. Raises ``ParseError``."""
