"""What a format of suites is to those who run it. An adapter knows no guests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from storlab.suites.groups import Installed
from storlab.suites.model import Expectations, Outcome, Script, Suite
from storlab.suites.runfile import Runfile

PLACE = "/var/tmp"


@dataclass(frozen=True)
class Needs:
    """What a guest must have for a suite.

    ``disks`` of ``disk_size`` bytes each are the suite's own, ``blank``: empty for each group, in guests; ``files``:
    bytes of a file system on a disk at ``place``.
    ``tree``: folders in the image that have the suite. ``set_up``: the name of a shell script that is run once as
    root, with ``DISKS``, ``FILEDIR`` and what is ``given``; it prints the environment of all scripts as ``env -0``.
    """

    programs: tuple[str, ...]
    disks: int
    disk_size: int
    set_up: str
    modules: tuple[str, ...] = ()
    files: int = 16 * 1024**3
    place: str = PLACE
    tree: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    blank: bool = False

    @property
    def set_up_script(self) -> str:
        return (files("storlab.suites.adapters") / self.set_up).read_text("utf-8")


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


class Adapter(ABC):
    """A format of suites. ``testdir``: the folder in the guest that relative names are below."""

    testdir: str

    @property
    @abstractmethod
    def name(self) -> str:
        """As a suite file calls it."""

    @property
    def runner(self) -> str:
        """The user who runs the suite."""
        return "root"

    def files(self, name: str) -> tuple[str, ...] | None:
        """Which files of the image are the suite of this name; ``None`` if the name is none of its."""
        return None

    @abstractmethod
    def groups(self, name: str, runfiles: Sequence[Runfile], installed: Installed) -> Suite:
        """The suite that these files are. Raises ``UserError`` with file and line."""

    @abstractmethod
    def launch(self, script: Script, variables: Mapping[str, str]) -> Launch:
        """How to execute a script; ``variables``: what the set-up printed."""

    @abstractmethod
    def judge(self, script: Script, code: int | None, printed: Callable[[], str]) -> tuple[Outcome, str]:
        """What a script's exit status, ``None`` if a signal ended it, and what it printed mean, and why."""

    @abstractmethod
    def needs(self) -> Needs: ...

    @property
    def expectations_file(self) -> str | None:
        """The file of the image that says which results are expected."""
        return None

    def expectations(self, source: str) -> Expectations:
        """What that file says. Raises ``ParseError``."""
        return Expectations()


def as_user(user: str) -> tuple[str, ...]:
    return () if user == "root" else ("runuser", "-u", user, "--")


def names_of(user: str) -> dict[str, str]:
    """The variables that say who runs a script."""
    return {"USER": user, "LOGNAME": user}
