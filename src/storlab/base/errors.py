"""Every exception that Storlab raises, in one tree.

    StorlabError
    ├── UserError              the user's mistake: exit status 2
    │   ├── StudyError         a study file, with file, line and key
    │   ├── SafetyError        refused, because it could harm data that is not Storlab's
    │   ├── MissingTool        a program, privilege or kernel feature that the command needs
    │   ├── MissingImage       there is no guest image that has what was asked for
    │   └── RecordsError       a folder or file that is not a run, or a damaged one
    ├── Unsupported            this machine can't provide a layer, workload or probe: never a failure
    ├── TrialError             a trial failed; recorded with its reason, the others go on
    │   ├── CommandFailed      a command ended with a status other than 0
    │   ├── TimedOut           a command or a trial was stopped at its time-out
    │   ├── TooMuch            a node sent more than Storlab takes: files, output, samples
    │   └── DiskFull           a file system ran out of space or inodes
    ├── ImageError             a guest image could not be built, or lost what it needs
    ├── NodeError              an agent or its stream
    │   ├── NodeLost           the stream closed, or the agent fell silent
    │   └── ProtocolError      bytes that are no frame, or another protocol version
    ├── SshError               ssh(1) or a command that it ran failed
    │   └── UnreachableError   a machine can't be reached over SSH, or no longer
    └── ParseError             foreign output that can't be read, with file and line

A message names the offending thing and the remedy, in one or two sentences, without a trailing traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storlab.base.text import alike, grouped


class StorlabError(Exception):
    """The root; ``cli`` prints its message and maps it to an exit status."""


class UserError(StorlabError):
    """Something that the user wrote or asked for can't be; the message says what to write instead.

    ``key``: where below the layer or workload that raises it the fault was written, as far as it knows.
    """

    def __init__(self, message: str, key: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a study file. ``line`` is 1-based; ``None`` where the key itself is missing."""

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        what = f"{self.key}: " if self.key else ""
        return f"{where}{what}{self.message}"


class StudyError(UserError):
    """A study file can't be used; holds every problem that was found, not only the first."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        by_line = grouped((problem.line, f"{file}: {problem}") for problem in self.problems)
        super().__init__("\n".join(said for each in by_line.values() for said in alike(each)))


class SafetyError(UserError):
    """Refused, because going on could destroy or disturb data that is not Storlab's."""


class MissingTool(UserError):
    """A program, privilege or kernel feature is missing; the message names the command that fixes it."""


class MissingImage(UserError):
    """There is no guest image that has what was asked for; the message names the command that builds it."""


class RecordsError(UserError):
    """A path that is not a run's folder, or one whose records can't be read."""


class Unsupported(StorlabError):
    """This machine can't provide what a cell needs. The cell is recorded as unsupported, with this reason."""


class TrialError(StorlabError):
    """A trial failed; ``detail`` holds the output that explains it."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class CommandFailed(TrialError):
    """A command on a node ended with a status other than 0."""


class Killed(TrialError):
    """A program was killed from outside, by the kernel for want of memory or by hand: that says nothing of its data."""


class TimedOut(TrialError):
    """A command or a whole trial was stopped at its time-out."""


class TooMuch(TrialError):
    """A node sent more than Storlab takes of one command, file, or trial; the message names both and the bound."""


class DiskFull(TrialError):
    """A file system ran out of space or inodes; the message names it."""


class ImageError(StorlabError):
    """A guest image could not be built: the mirror, the disk, a program. What was finished before is kept."""


class NodeError(StorlabError):
    """A node's agent or its stream failed."""


class NodeLost(NodeError):
    """The stream to an agent closed, or the agent fell silent."""


class ProtocolError(NodeError):
    """Bytes that are no frame of the protocol, or an agent of another version."""


class SshError(StorlabError):
    """OpenSSH's client, or a command that it ran, failed; the message has the host, ssh's own words, and a remedy.

    ``status``: the command's exit status on that machine, if it ended there.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(SshError):
    """A machine can't be reached over SSH: no route, no login, a key that is not known, or the link was lost."""


class ParseError(StorlabError):
    """Foreign output that can't be read. ``source`` names the file, ``line`` is 1-based where it is known."""

    def __init__(self, message: str, source: str = "", line: int | None = None) -> None:
        self.source, self.line = source, line
        where = f"{source}:{line}: " if source and line is not None else f"{source}: " if source else ""
        super().__init__(where + message)
