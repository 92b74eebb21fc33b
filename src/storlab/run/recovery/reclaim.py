"""Taking back what runs have set up, newest first: the same work at a normal end and after a power cut.

Each entry of a journal is undone on its own node. Where that can't be reached, it stays pending and is reported; what
is on another machine is never looked for here.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from storlab.base.errors import Problem, RecordsError, SafetyError, StorlabError
from storlab.base.reach import Found
from storlab.nodes.processes import end_marked
from storlab.nodes.settings import restore
from storlab.records.held import HeldFolder, held
from storlab.records.run_folder import RunFolder
from storlab.registry import node_kinds
from storlab.run.machine import try_lock
from storlab.run.permissions import Permissions, each_once, refuse, unpermitted, want_of
from storlab.run.recovery.journal import JOURNAL, Journal, Pending, read_pending, refuse_others
from storlab.run.recovery.orphans import left_of, refuse_living, remove
from storlab.run.recovery.temporary import remembered_runs
from storlab.run.recovery.undoing import undo_table
from storlab.run.session import Session
from storlab.study.study import Study

LOCK = Path("/run/storlab/settings")  # only root can put anything into /run
_LONGEST = 8192  # B
_AGAIN = 0.2  # s


def changes_settings(study: Study, permissions: Permissions) -> bool:
    """Whether a run may change settings of this machine's kernel."""
    groups = (group for cell in study.cells for group in cell.nodes.values() if group.here)
    return permissions.unconfined or any(group.settings for group in groups)


@asynccontextmanager
async def alone(run: str, folder: Path, changes_settings: bool, notify: Callable[[str], None]) -> AsyncIterator[None]:
    """Of the runs that may change this machine's settings, one at a time: of two, each would take the other's changes
    for its own study's, and put back what the other had set. Those are root's that are ``--unconfined``, or whose study
    sets some of this machine's.

    The lock is the kernel's and goes with its process, however that ends. Its file names the last run that had it,
    whose journal says whether anything is still to be put back. A restart removes it, and resets the settings. Raises
    ``SafetyError`` if a run has left some to be put back.
    """
    if not changes_settings or os.geteuid() != 0:
        yield
        return
    with suppress(FileExistsError):
        LOCK.parent.mkdir()
        LOCK.parent.chmod(0o755)
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(descriptor):
            last, where = _last(descriptor)
            notify(f"Waiting for the run {last} in {where}: it may change the same settings of this machine.")
            while not try_lock(descriptor):  # noqa: ASYNC110 - what is waited for is another process
                await asyncio.sleep(_AGAIN)
        last, where = _last(descriptor)
        if last not in ("", run) and _left(Path(where)):
            raise SafetyError(
                f"the run {last} has left settings of this machine changed: `storlab clean {where}` puts them back"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, os.fsencode(f"{run}\n{folder.resolve()}"), 0)
        yield
    finally:
        os.close(descriptor)


def _last(descriptor: int) -> tuple[str, str]:
    """The run that had the lock last, and its folder; empty if there was none."""
    run, _, folder = os.fsdecode(os.pread(descriptor, _LONGEST, 0)).partition("\n")
    return run, folder


def _left(folder: Path) -> bool:
    """Whether a run's journal names settings that are to be put back; of one that is gone, nothing is known."""
    try:
        return any(entry.undo == restore.name for entry in read_pending(folder / JOURNAL))
    except RecordsError:
        return True  # damaged: `storlab clean` says where


def _refuse_unpermitted_hosts(holding: HeldFolder, folder: Path, permissions: Permissions) -> None:
    """Raise ``StudyError`` if a journal has machines that nobody permitted. Of a run that this user began, and of
    which not all was torn down yet, they were permitted then.
    """
    pending = read_pending(holding.run.journal)
    known = remembered_runs().get(holding.run.manifest.run)
    if known is not None and known.resolve() == folder.resolve():
        return
    kinds = node_kinds()
    far = [each.node for each in pending if (kind := kinds.get(each.node.kind)) and "hosts" in kind.model_fields]
    # What follows the host is how the agent becomes root there.
    wants = each_once(
        want_of(Found((node.name,), "host", node.address.partition(" ")[0]), (), "", None) for node in far
    )
    refused = unpermitted(wants, permissions)
    refuse(str(folder / JOURNAL), refused, lambda key, message: Problem(".".join(map(str, key)), message))


@contextmanager
def taken(folder: Path, permissions: Permissions) -> Iterator[HeldFolder]:
    """An existing run, for whoever acts on what its folder says: held open and locked for as long as the block lasts.

    All that is believed of it is read by its descriptor, so nobody can put another folder in its place in between.
    Raises ``RecordsError`` if it is none, is in use, lives, or others may have written to it; ``StudyError`` if undoing
    would log in to machines that nobody permitted.
    """
    with held(RunFolder.open(folder)) as holding:
        refuse_others(holding.run.path)
        with holding.lock():
            refuse_living(holding.run.manifest.run, folder)
            _refuse_unpermitted_hosts(holding, folder, permissions)
            yield holding


@dataclass
class Teardown:
    """What was torn down, in words, and what could not be, with the reason."""

    did: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def __add__(self, other: Teardown) -> Teardown:
        return Teardown(self.did + other.did, self.failed + other.failed)


async def tear_down(journal: Journal, session: Session, wanted: Callable[[Pending], bool] = lambda _: True) -> Teardown:
    """Undo all pending entries that are wanted. One that fails stays pending, and the others go on."""
    result = Teardown()
    for entry in journal.pending:
        if not wanted(entry):
            continue
        try:
            did = await _undo(entry, session, journal)
        except (StorlabError, OSError) as error:  # the latter where a journal can't take in what is launched for it
            journal.failed(entry, str(error))
            result.failed.append(f"{entry.undo} {' '.join(map(str, entry.arguments.values()))}: {error}")
        else:
            journal.undone(entry, did)
            if did is not None:
                result.did.append(did)
    return result


async def tear_down_rest(journal: Journal, session: Session) -> Teardown:
    """Tear down what another process of Storlab's left when it died.

    First what may still be running: it would keep all else busy, or go on setting things up.
    """
    processes = await tear_down(journal, session, lambda entry: entry.undo == end_marked.name)
    # Agents from before there was a journal may have been killed, too.
    processes += Teardown(*await remove(left_of(session.run), session))
    return processes + await tear_down(journal, session, lambda entry: entry.undo != end_marked.name)


def unrecorded(error: OSError, folder: Path, trials: int, left: Sequence[str]) -> Exception:
    """What to say where a run's folder fails while it runs; teardown needs none of it.

    ``trials``: how many ended; ``left``: what could not be torn down. A full disk has a message of its own.
    """
    if _is_foreign(error, folder) or error.errno == errno.ENOSPC:
        return error
    state = f"could not be torn down: {'; '.join(left)}" if left else "everything is torn down"
    return StorlabError(
        f"{folder} failed ({error.strerror}), and so the run stopped: {state}. Not recorded: the journal's last lines, "
        f"trials after the {trials} that ended, tables and summary. Once it can be written to again, "
        f"`storlab resume {folder}` runs what is missing"
    )


def is_missing(error: OSError, folder: Path) -> bool:
    """Whether it says that something of a run's folder is not there."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR) and not _is_foreign(error, folder)


def _is_foreign(error: OSError, folder: Path) -> bool:
    name = os.fsdecode(error.filename or "")
    held = f"/proc/{os.getpid()}/fd"  # where a run's folder is while it is held open
    own = (folder, held, "/proc/self/fd")
    return error.filename is not None and not any(Path(name).is_relative_to(each) for each in own)


async def _undo(entry: Pending, session: Session, journal: Journal) -> str | None:
    node = await session.node_of(entry.node)
    if node is None:
        return None
    if node.identity.machine.boot != entry.node.machine.boot and not entry.outlives_boot:
        return None
    undo = undo_table().get(entry.undo)
    if undo is None:
        raise StorlabError(f"nothing that is installed here knows how to undo {entry.undo}")
    undo.check(entry.arguments, session.run, noted=undo.noted and journal.is_announced(entry))
    try:
        async with asyncio.timeout(undo.patience):
            return await undo.function(node, **entry.arguments)
    except TimeoutError:
        raise StorlabError(f"it took longer than {undo.patience:g} s") from None
    except (TypeError, ValueError, LookupError, FileNotFoundError) as error:  # of arguments, or of what a node printed
        raise StorlabError(f"that can't be undone: {error!r}") from None
