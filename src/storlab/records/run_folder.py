"""A run's folder: where everything in it lies, and its tables as frames. ``docs/reference/records.md`` describes it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from storlab.base.errors import RecordsError
from storlab.base.limits import RECORD as LONGEST_RECORD
from storlab.base.reading import open_file, read_file
from storlab.base.record import Number, Seconds, read_record, to_json
from storlab.findings import AnyFinding, InTrials
from storlab.findings.runs import RawUnreadable
from storlab.metrics import Declarations
from storlab.records.files import write_durably, write_whole
from storlab.records.manifest import LOCK, Manifest, read_manifest

if TYPE_CHECKING:
    import polars as pl


RECORD = "trial.json"
Status = Literal["done", "failed", "unsupported"]
NodeName = Annotated[str, Meta(pattern=r"^(?!\.{1,2}\Z)[^/\x00]{1,255}\Z")]
"""Also that of a folder in the trial's."""
LayerFacts = dict[str, Any]
"""Of one layer; ``layer`` is its kind."""


class NodeRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One node's part in a trial: its measured phase in seconds on its own monotonic clock, and its disks."""

    start: Seconds
    end: Seconds
    machine: str  # boot id: nodes with the same one are the same machine
    disks: list[str] = []  # the kernel's names, as far as they are known
    clock_error: float = 0.0  # s, at most, between its clock and the controller's, as compared before and after
    late: float = 0.0  # s, after the agreed instant

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ValueError("end: it is not after its start")


class ChangedSetting(Struct, frozen=True, forbid_unknown_fields=True):
    """A setting that is another one after a trial than before. ``now``: as it was left, which is ``before`` if put
    back.
    """

    node: NodeName
    name: str  # "vm.dirty_bytes", "scheduler of loop"
    before: str
    after: str
    now: str


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that had a part in a trial: its host name, and its machine-id(5), empty where it has none.

    Two are the same machine only if both agree: clones of one image share an id, and machines without a name of their
    own are all called ``localhost``.
    """

    name: str
    machine: str = ""


class TrialRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of ``trials.parquet``, with what else is needed to derive the other tables. Times in seconds."""

    trial: Number
    round: Number
    cell: Number
    levels: dict[str, str]
    status: Status
    reason: str | None = None
    detail: str = ""  # output that explains a failure
    lost_after: Seconds | None = None  # how far into the load something was lost, where a load ran then
    started: datetime | None = None
    duration: Seconds | None = None
    measured: Seconds | None = None
    hosts: list[Host] = []  # this machine, and all others that its nodes were on; of an import, nobody knows
    block: Number | None = None  # of the round: cells that share what is kept for it
    start_skew: Seconds | None = None
    start_skew_error: Seconds | None = None  # by how much it may be wrong, given the round trips to the nodes
    slices: Number | None = None  # in which the load worked, in turn with those of other trials of its round
    phases: dict[str, Seconds] = {}  # seconds spent in each
    nodes: dict[NodeName, NodeRecord] = {}
    facts: dict[NodeName, list[LayerFacts]] = {}  # node → layer by layer
    probes: dict[str, list[NodeName]] = {}  # probe → nodes where it watched
    loads: dict[str, list[NodeName]] = {}  # workload → nodes where it ran
    warnings: list[AnyFinding] = []
    guests: dict[NodeName, dict[str, Any]] = {}  # node → what that virtual machine was
    settings: dict[NodeName, dict[str, str]] = {}  # node → what else was set on its machine, by name
    changed: list[ChangedSetting] = []

    def __post_init__(self) -> None:
        if not all(isinstance(layer.get("layer"), str) for layers in self.facts.values() for layer in layers):
            raise ValueError("facts: each must name its layer")


def unreadable(trial: int, why: object) -> InTrials:
    """That a trial's raw records can't be read; ``why`` may name a file of its folder, by any trial's."""
    return InTrials((trial,), RawUnreadable(str(why).replace(f"trials/{trial:04d}/", "trials/…/")))


def write_trial(folder: Path, record: TrialRecord, durable: bool = True) -> None:
    """Write ``trial.json``, last and at once, so a trial is whole or does not exist; and so that it survives a power
    cut once this returns, unless it can be made again.
    """
    write = write_durably if durable else write_whole
    write(folder / RECORD, to_json(record))


def read_trial(folder: Path) -> TrialRecord | None:
    """Read it back; ``None`` where the trial never ended. Raises ``RecordsError`` where it is damaged."""
    try:
        return read_record(folder / RECORD, TrialRecord)
    except FileNotFoundError:
        return None


def set_aside(folder: Path) -> bool:
    """What an interrupted attempt at this trial left is kept beside, to be looked at. Whether there was one."""
    if not folder.exists():
        return False
    attempt = 1
    while (aside := folder.with_name(f"{folder.name}.interrupted-{attempt}")).exists():
        attempt += 1
    folder.rename(aside)
    return True


def refuse_linked_raw(trial: Path) -> None:
    """Raise ``RecordsError`` where anything in a trial's folder is a link: loads leave none, and what it leads to would
    be read into tables that are shared.
    """
    left = [str(trial)]
    while left:
        with suppress(FileNotFoundError), os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise RecordsError(f"{entry.path} is a symbolic link, which no load or probe has left")
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def raw_folder(trial: Path, node: str, source: str) -> Path:
    return trial / node / source.replace(":", "-")


TABLES = ("trials", "metrics", "series", "histograms", "requests", "checks", "findings")


_FOLDERS = ("trials", "tables", "guests", "charts")


@dataclass(frozen=True)
class RunFolder:
    """Paths and records of one run. Tables are read when first asked for."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run. Raises ``RecordsError`` where it is none, or where some of it lies elsewhere."""
        folder = cls(Path(path))
        read_manifest(folder.path)
        folder.refuse_links()
        return folder

    def refuse_links(self) -> None:
        """Raise ``RecordsError`` where its folders are links: what is written there would go wherever they lead."""
        for name in _FOLDERS:
            if (self.path / name).is_symlink():
                raise RecordsError(
                    f"{self.path / name} is a symbolic link: all of a run lies in its own folder. Put what it leads to "
                    "in its place, or remove it"
                )

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.path)

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def trial_folder(self, trial: int) -> Path:
        """``trials/NNNN``: the raw records of one trial."""
        return self.path / "trials" / f"{trial:04d}"

    def table_path(self, name: str) -> Path:
        return self.path / "tables" / f"{name}.parquet"

    @property
    def declared_path(self) -> Path:
        return self.path / "tables" / "declared.json"

    @property
    def kept_path(self) -> Path:
        """What the tables came from, see ``kept``."""
        return self.path / "tables" / "kept.json"

    def records(self) -> Iterator[TrialRecord]:
        """All trials that ended, in order. Raises ``RecordsError`` where they can't be read."""
        trials = self.path / "trials"
        try:
            folders = [each for each in trials.iterdir() if each.name.isascii() and each.name.isdecimal()]
        except FileNotFoundError:
            return
        except OSError as error:
            raise RecordsError(f"cannot read {trials}: {error.strerror}") from None
        for folder in sorted(folders, key=lambda each: int(each.name)):
            if folder.is_symlink():
                raise RecordsError(f"{folder} is a symbolic link: all of a run lies in its own folder. Remove it")
            record = read_trial(folder)
            if record is None:
                continue
            if record.trial != int(folder.name):
                raise RecordsError(f"{folder / RECORD} is damaged: trial: {record.trial} in the folder of another")
            yield record

    def _table(self, name: str) -> pl.DataFrame:
        import polars

        path = self.table_path(name)
        remedy = f"`storlab report {self.path}` derives it from the raw records"
        if not path.exists():
            raise RecordsError(f"{path} does not exist: {remedy}")
        try:
            with open_file(path) as file:  # by descriptor, for in a path Polars takes * and [ for patterns
                return polars.read_parquet(f"/proc/self/fd/{file.fileno()}")
        except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise RecordsError(f"cannot read {path}: {why}; {remedy}") from None

    @cached_property
    def trials(self) -> pl.DataFrame:
        return self._table("trials")

    @cached_property
    def metrics(self) -> pl.DataFrame:
        return self._table("metrics")

    @cached_property
    def series(self) -> pl.DataFrame:
        return self._table("series")

    @cached_property
    def histograms(self) -> pl.DataFrame:
        return self._table("histograms")

    @cached_property
    def requests(self) -> pl.DataFrame:
        return self._table("requests")

    @cached_property
    def checks(self) -> pl.DataFrame:
        """One row a check of a directory and what came of it; none without the workload ``posix``."""
        return self._table("checks")

    @cached_property
    def findings(self) -> pl.DataFrame:
        """One row a series that was looked at: how much it varies, whether it was steady."""
        return self._table("findings")

    @cached_property
    def declared(self) -> Declarations:
        try:
            return Declarations.from_json(read_file(self.declared_path, LONGEST_RECORD), str(self.declared_path))
        except OSError as error:
            raise RecordsError(f"cannot read {self.declared_path}: {error.strerror}") from None

    def _open_lock(self, named: Path) -> int:
        path = named / LOCK
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
            descriptor = os.open(self.path / LOCK, flags, 0o600)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise RecordsError(f"{path} is not a file of Storlab's: remove it") from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RecordsError(f"{path} is not a file of Storlab's: remove it")
        return descriptor

    @contextmanager
    def lock(self, mark: str = "", named: Path | None = None) -> Iterator[None]:
        """Hold the run: only one process executes, resumes or cleans it. Raises ``RecordsError`` if another does.

        The lock is the kernel's and goes with the process, however that ends. ``mark``: what the folder is known by if
        it may be removed once that process is gone; it stands in the lock after the process. ``named``: what messages
        call it.
        """
        descriptor = self._open_lock(named or self.path)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").partition("\n")[0].strip() or "unknown"
                message = f"{named or self.path} is in use by process {holder}: wait for it, or stop it first"
                raise RecordsError(message) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n{mark}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)
