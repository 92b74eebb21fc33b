"""A run of a suite in its folder: ``suite.json`` says what was asked, ``results.jsonl`` has a line for each script.

A line is on disk for good before the next script starts, so that a run that was killed is resumed where it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from storlab.base.errors import RecordsError
from storlab.base.limits import RECORD
from storlab.base.reading import open_file, read_file
from storlab.base.record import Count, Number, Seconds, parse_lines, read_record, to_json
from storlab.base.text import grouped
from storlab.findings import Reported
from storlab.layers.block.identity import DeviceIdentity
from storlab.records.files import sync_folder, write_durably
from storlab.records.manifest import read_manifest
from storlab.suites.adapters.check import CheckOptions
from storlab.suites.adapters.zts import ZtsOptions
from storlab.suites.expectations import OwnEntry, with_own
from storlab.suites.model import Absent, Attempt, Expectations, Group, SuiteEnvironment, report_name, test_name
from storlab.suites.runfile import Runfile

FILES = "/var/tmp"


@dataclass(frozen=True)
class Here:
    """What of this machine a suite may use. ``machine``: its name, as the user wrote it.

    ``files``: the folder in which the run has its own; ``disks``: paths of devices, none for loop devices over files
    there; ``wipe``: those that may carry data; ``keep``: storage pools that may be imported; ``user``: who runs tests.
    """

    machine: str
    files: str = FILES
    disks: tuple[str, ...] = ()
    wipe: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    user: str = "root"
    devices: tuple[DeviceIdentity, ...] = ()  # what the disks were when the run began


def who_lacks(here: Here | None) -> str:
    return "the guest image" if here is None else "this machine"


@dataclass(frozen=True)
class OwnKernel:
    """Absolute paths of this machine. ``image``: a bzImage or vmlinux; ``modules``: its …/lib/modules/RELEASE;
    ``rootfs``: a root file system, as a folder or an image of one; ``tree``: of OpenZFS, configured and built.
    """

    image: str | None
    modules: str | None = None
    rootfs: str | None = None
    tree: str | None = None

    @property
    def keys(self) -> dict[str, object]:
        """As nodes of kind ``vm`` call them; a guest of a tree boots, since the next one is of another state of it."""
        keys = {"kernel": self.image, "modules": self.modules, "rootfs": self.rootfs, "zfs_tree": self.tree}
        return {**keys, **({"start": "cold"} if self.tree is not None else {})}


SUITE, RESULTS, LOG, OUTPUT, CONSOLES = "suite.json", "results.jsonl", "log", "output", "guests"
ENVIRONMENT = "environment.json"
"""Beside the console of a guest that is not what the run's first guest was."""
FORMAT = 1
_LAST = 4000  # bytes of what a script printed
_LOOKED_AT = 64 * 1024  # bytes of it in which its reason is looked for
_LONGEST = 300  # characters of a reason
_STAMP = re.compile(r"^\d\d:\d\d:\d\d\.\d\d ")


class SuiteRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run of a suite was asked for, and what it was found to consist of. ``scale``: of time-outs.

    ``tests``: the folder of this machine whose tests these are; ``None`` for those of the image.
    """

    name: str
    runner: str
    groups: tuple[Group, ...]
    runfiles: tuple[Runfile, ...]
    testdir: str
    tests: str | None = None
    absent: tuple[Absent, ...] = ()
    expectations: Expectations = msgspec.field(default_factory=Expectations)
    lacking: dict[str, list[str]] = {}  # program that the image lacks → tests that seem to use it
    notes: tuple[str, ...] = ()
    quiet: bool = False
    guests: Number = 1
    cpus: Number = 1
    memory: Count = 0
    scale: Seconds | None = None  # asked for; by default what is measured
    retries: Count = 0
    environment: SuiteEnvironment | None = None  # of its first guest; runs of older versions have none
    zts: ZtsOptions | None = None
    check: CheckOptions | None = None
    adapter: str = "zts"
    seed: int | None = None  # by which the order was drawn; by default it is the suite's
    replayed: bool = False  # in the order of an earlier run
    until_failure: bool = False  # again and again
    iterations: Count = 0  # at most, if not 0
    variables: dict[str, str] = {}  # of all scripts, in the first guest
    own: tuple[OwnEntry, ...] = ()  # what the user expects, beside the suite's own tables
    here: Here | None = None  # run on this machine; by default in guests
    kernel: OwnKernel | None = None  # that guests boot; by default the image's
    share: tuple[Number, Number] = (1, 1)  # K of N
    format: int = FORMAT

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [(group.name, test.path) for group in self.groups for test in group.tests]

    @property
    def lacked(self) -> dict[str, list[str]]:
        """Test → the programs that it seems to use and the image lacks."""
        return grouped((test, program) for program, tests in self.lacking.items() for test in tests)

    def expected_on(self, day: date) -> Expectations:
        """What is expected of all scripts: by the suite's tables, or by the user's list in their place."""
        if not self.own:
            return self.expectations
        named = ((path, (report_name(path), test_name(path, self.testdir))) for path in self.paths)
        pairs = ((path, name) for path, names in named for name in names)
        return with_own(self.expectations, self.own, pairs, self.environment, day)

    @property
    def paths(self) -> list[str]:
        scripts = (each for group in self.groups for each in (group.pre, *group.tests, group.post) if each is not None)
        return list(dict.fromkeys(script.path for script in scripts))


@dataclass(frozen=True)
class SuiteRun:
    """A run of a suite as its folder has it."""

    folder: Path
    asked: SuiteRecord
    attempts: tuple[Attempt, ...]
    started: datetime
    finished: datetime | None
    stopped: str
    identity: str = ""  # of the run, wherever its folder lies
    others: tuple[tuple[str, SuiteEnvironment], ...] = ()  # guests that were not what the first one was
    took: float | None = None  # s, of several runs together

    @property
    def results(self) -> dict[tuple[str, str], Attempt]:
        last = {each.key: each for each in self.attempts if each.role == "test"}
        return {key: last[key] for key in self.asked.keys if key in last}

    @cached_property
    def expectations(self) -> Expectations:
        """What was expected on the day on which it began."""
        return self.asked.expected_on(self.started.date())

    @property
    def without_result(self) -> list[tuple[str, str]]:
        results = self.results
        return [key for key in self.asked.keys if key not in results]

    @property
    def seconds(self) -> float:
        if self.took is not None:
            return self.took
        ends = [each.started.timestamp() + each.elapsed for each in self.attempts]
        end = self.finished.timestamp() if self.finished else max(ends, default=self.started.timestamp())
        return max(end - self.started.timestamp(), 0.0)

    def last_words(self, attempt: Attempt, most: int = _LAST) -> str:
        """The end of what a script printed, with its times; empty if nothing is kept of it."""
        if not attempt.folder:
            return ""
        try:
            with open_file(self.folder / attempt.folder / "log") as file:
                file.seek(0, 2)
                file.seek(max(file.tell() - most, 0))
                return file.read(most).decode(errors="replace")
        except OSError:
            return ""

    def telling(self, attempt: Attempt) -> str:
        """The line by which a script seems to say what was wrong; empty if it printed none.

        The last with ``ERROR:``, since tests of ZFS clean up and say so after it; else the last.
        """
        lines = [_STAMP.sub("", line).strip() for line in self.last_words(attempt, _LOOKED_AT).splitlines()]
        lines = [line for line in lines if line]
        said = next((line for line in reversed(lines) if "ERROR:" in line), lines[-1] if lines else "")
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"


def read_suite_run(folder: Path) -> SuiteRun:
    """A run of a suite. Raises ``RecordsError`` if it is none, or damaged."""
    manifest = read_manifest(folder)
    if not manifest.suite:
        raise RecordsError(f"{folder} is the run of a study: `storlab report {folder}` shows it")
    asked = read_suite_record(folder)
    stopped = manifest.stopped.text if isinstance(manifest.stopped, Reported) else ""
    ended = manifest.finished, stopped, manifest.run
    found = sorted((folder / CONSOLES).glob(f"*/{ENVIRONMENT}"))
    others = tuple((path.parent.name, read_record(path, SuiteEnvironment)) for path in found)
    return SuiteRun(folder, asked, tuple(read_results(folder)), manifest.started, *ended, others)


def write_suite_record(folder: Path, record: SuiteRecord) -> None:
    write_durably(folder / SUITE, to_json(record))


def read_suite_record(folder: Path) -> SuiteRecord:
    try:
        record = read_record(folder / SUITE, SuiteRecord)
    except (FileNotFoundError, NotADirectoryError):
        raise RecordsError(f"{folder} has no {SUITE}: it was stopped before any test was known") from None
    if record.format != FORMAT:
        raise RecordsError(f"{folder / SUITE} is not of format {FORMAT}: it comes from another version of Storlab")
    return record


class Results:
    """Appends to ``results.jsonl``; owned by the one process that holds the run's lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        drop_torn_line(self._path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        sync_folder(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def add(self, attempt: Attempt) -> None:
        """One more line, on disk for good when this returns. Raises ``OSError``; the file is then as it was before."""
        line = msgspec.json.encode(attempt.bounded()) + b"\n"
        begin = os.fstat(self._descriptor).st_size
        try:
            while line:  # a disk that is nearly full takes a part first, often twice
                line = line[os.write(self._descriptor, line) :]
            os.fdatasync(self._descriptor)
        except BaseException:  # results of other guests may still come, and must not follow half a line
            os.ftruncate(self._descriptor, begin)
            raise


def drop_torn_line(path: Path) -> None:
    """Cut off what a killed process wrote of a line that it did not finish."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


_LINE = msgspec.json.Decoder(Attempt)


def parse_results(data: bytes, name: str) -> list[Attempt]:
    """All whole lines; one that is not whole is the last, torn. Raises ``RecordsError`` with file and line."""
    return parse_lines(_LINE, data, name)


def read_results(folder: Path) -> list[Attempt]:
    """What came of all scripts so far, in the order in which they ended. Raises ``RecordsError``."""
    path = folder / RESULTS
    try:
        return parse_results(read_file(path, RECORD), str(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}") from None


# Which script is under way on this machine, so that one that takes the machine down with it has a result all the
# same.
#
# In guests the controller outlives what is lost, and writes that itself.

UNDER_WAY = "under-way.json"


class _UnderWay(Struct, frozen=True, forbid_unknown_fields=True):
    """``boot``: of the machine; ``lost``: the script's result, should the machine go down before there is another."""

    boot: str
    lost: Attempt


def write_under_way(folder: Path, boot: str, lost: Attempt) -> None:
    """A script is about to begin: durably, in place of the one before."""
    write_durably(folder / UNDER_WAY, to_json(_UnderWay(boot, lost)))


def taken_down(folder: Path, boot: str, known: Iterable[Attempt]) -> Attempt | None:
    """The result of a script that ran when the machine was booted again, by its ``boot`` now.

    ``known``: the results that there are. Raises ``RecordsError`` if the file is damaged.
    """
    try:
        found = read_record(folder / UNDER_WAY, _UnderWay)
    except FileNotFoundError:
        return None
    lost = found.lost
    done = any(
        (each.key, each.role, each.number) == (lost.key, lost.role, lost.number) and each.started >= lost.started
        for each in known
    )
    return None if done or found.boot == boot else lost
