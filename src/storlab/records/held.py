"""A run's folder that is held open while it is written: what is renamed meanwhile is still found, and nothing else."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storlab.base.errors import StorlabError, UserError
from storlab.records.files import sync_folder, unfinished
from storlab.records.manifest import LOCK, NAME
from storlab.records.run_folder import RunFolder


@dataclass(frozen=True)
class HeldFolder:
    """``named``: as it was called when it was opened. ``run``: the same by its descriptor, whatever its name is now."""

    named: RunFolder
    descriptor: int

    @property
    def run(self) -> RunFolder:
        """Also for programs that this process starts."""
        return RunFolder(Path(f"/proc/{os.getpid()}/fd/{self.descriptor}"))

    def lock(self, mark: str = "") -> AbstractContextManager[None]:
        """As ``RunFolder.lock``."""
        return self.run.lock(mark, self.named.path)

    def by_descriptor(self, path: Path) -> Path:
        return self.run.path / path.relative_to(self.named.path)

    @property
    def is_whole(self) -> bool:
        """Whether it can still be written to, wherever it is now: what removes it removes the manifest as well."""
        return (self.run.path / NAME).exists()

    @property
    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.named.path.stat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def refuse_moved(self, *, missing: bool = False) -> None:
        """Raise ``StorlabError`` where it was renamed, removed or replaced, or a link on the way leads elsewhere.

        ``missing``: something of it was not there, so it is just being removed or moved.
        """
        if self._is_in_place and self.is_whole and not missing:
            return
        now, rest = str(self.run.path.readlink()), ""
        if now.endswith(" (deleted)") or not self.is_whole:
            where = "it was removed"
        elif self._is_in_place:
            where, rest = "some of it was removed", f"; `storlab resume {self.named.path}` runs what is missing"
        else:
            where, rest = f"it was moved to {now}", f"; its trials are in there, and `storlab resume {now}` resumes it"
        raise StorlabError(
            f"{self.named.path} is not the folder of this run any more: {where} while the run wrote to it. "
            f"The run was stopped, and what it had set up is torn down{rest}"
        )


@contextmanager
def held(run: RunFolder) -> Iterator[HeldFolder]:
    """Within, the folder is open. Raises ``OSError``, and ``RecordsError`` where some of it lies elsewhere."""
    descriptor = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = HeldFolder(run, descriptor)
        folder.run.refuse_links()
        with _errors_by_name(folder):
            yield folder
    finally:
        os.close(descriptor)


@contextmanager
def _errors_by_name(folder: HeldFolder) -> Iterator[None]:

    def by_name(text: object) -> object:
        held_as = rf"{re.escape(str(folder.run.path))}(?![0-9])"
        return re.sub(held_as, lambda _: str(folder.named.path), text) if isinstance(text, str) else text

    try:
        yield
    except OSError as error:
        error.filename = by_name(error.filename)
        raise
    except StorlabError as error:
        error.args = tuple(map(by_name, error.args))
        raise


@contextmanager
def new_run_folder(path: Path, named: Path | None = None, mark: str = "") -> Iterator[HeldFolder]:
    """A new run's folder, open and locked. Raises ``UserError`` where it can't be, or where something lies in it.

    Only its user can look into it: records name what a run makes.
    What a run left that was killed before it had a manifest is nothing. ``named``: what messages call the folder, where
    it is moved there once it is whole. ``mark``: see ``RunFolder.lock``.
    """
    with ExitStack() as opened:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            sync_folder(path.parent)
            folder = HeldFolder(RunFolder(path), _opened_private(path))
            opened.callback(os.close, folder.descriptor)
            opened.enter_context(folder.lock(mark))
            _refuse_unless_empty(path, folder.descriptor)  # nor did another process begin a run here meanwhile
        except FileExistsError:  # which a folder isn't in the way of
            raise UserError(f"{named or path} can't be used for the run: {os.strerror(errno.ENOTDIR)}") from None
        except OSError as error:
            raise UserError(f"{named or path} can't be used for the run: {error.strerror}") from None
        with _errors_by_name(folder):
            yield folder


def make_private(path: Path) -> None:
    """Let nobody else into an empty folder of the user's own.

    Raises ``UserError`` where it is not empty, or another's, who could replace what is written there; and ``OSError``.
    """
    os.close(_opened_private(path))


def _opened_private(path: Path) -> int:
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link: name the folder that it leads to")
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise UserError(f"{path} belongs to another user (uid {found.st_uid}): name a new folder, or one of yours")
        _refuse_unless_empty(path, descriptor)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_unless_empty(path: Path, descriptor: int) -> None:
    """Raise ``UserError`` where something lies in a folder; what a run left that was killed at once is nothing."""
    if {*os.listdir(descriptor)} - {LOCK, unfinished(path / NAME).name}:
        raise UserError(f"{path} is not empty: name a new folder for this run")
