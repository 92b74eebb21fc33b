"""The folder that ``test-runner.py`` leaves: ``log``, and what each script printed, where scripts look for it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from storlab.base.errors import UserError
from storlab.suites.groups import inside
from storlab.suites.model import Attempt, Group, Outcome, report_name
from storlab.suites.originals import output_folder
from storlab.suites.records.folder import LOG
from storlab.suites.zts_text import console_line

_COPIED = ("stdout", "stderr", "merged")
_OF_MACHINE = "config.json"
"""Of the machine, and not of a test: the runner's own tests write it once."""


class ClassicFolder:
    """``BASE/TIME`` and, beside it, the link ``current`` to it. Raises ``UserError`` if it can't be made.

    Nobody else may write there, unlike with the original, and it is held open: others may own what is above it.
    """

    def __init__(self, base: Path, now: datetime) -> None:
        self.path = base / now.strftime("%Y%m%dT%H%M%S")
        self._groups: Mapping[str, Group] = {}
        self._killed: dict[str, tuple[Attempt, str, Path]] = {}  # by group: groups run side by side in several guests
        try:
            _make(base)
            _make(self.path, exist=False)
            self._within = _held(self.path)
            current = base / "current"
            if current.is_symlink():
                current.unlink()
            if not current.exists():
                current.symlink_to(self.path)
        except OSError as error:
            raise UserError(
                f"cannot use {error.filename or base} for the output: {error.strerror}; name another folder with -o"
            ) from None

    def discard(self) -> None:
        (self.path.parent / "current").unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def begin(self, groups: Iterable[Group]) -> None:
        self._groups = {group.name: group for group in groups}

    def add(self, attempt: Attempt, runner: str, run: Path) -> None:
        """A script has ended; ``run``: the folder of Storlab's own records.

        A test that was killed waits for its failsafe script, which is logged first.
        """
        if attempt.role == "failsafe":
            self._write(attempt, runner, run)
            self._flush(attempt.group)
            return
        self._flush(attempt.group)
        group = self._groups.get(attempt.group)
        if attempt.outcome is Outcome.KILLED and group is not None and group.failsafe is not None:
            self._killed[attempt.group] = (attempt, runner, run)
        else:
            self._write(attempt, runner, run)

    def write_results(self, text: str) -> None:
        try:
            (self._within / "results").write_text(text, "utf-8")
        except OSError as error:
            raise UserError(f"cannot write {self.path}/results: {error.strerror}") from None

    def flush(self) -> None:
        for group in tuple(self._killed):
            self._flush(group)

    def _flush(self, group: str) -> None:
        if (killed := self._killed.pop(group, None)) is not None:
            self._write(*killed)

    def _write(self, attempt: Attempt, runner: str, run: Path) -> None:
        with (self._within / LOG).open("ab") as log:
            log.write(console_line(attempt, runner).encode())
            if not attempt.folder:
                return
            own = run / attempt.folder / LOG
            if own.exists():
                with own.open("rb") as lines:
                    shutil.copyfileobj(lines, log)
        folder = self._within / inside(self._folder(attempt))
        _make(folder)
        for name in _COPIED:
            if (run / attempt.folder / name).exists():
                shutil.copyfile(run / attempt.folder / name, folder / name)
        for name in attempt.kept:
            self._gather(run / attempt.folder / name, name, report_name(attempt.path))

    def _gather(self, kept: Path, name: str, test: str) -> None:
        """What a test left where its runner works, as all tests of a run leave it there: in one folder.

        A file whose name begins with nothing but its suffix is each test's, and gets the name of this one in front.
        """
        test = test.rpartition("/")[2]
        for file in sorted(path for path in kept.rglob("*") if path.is_file()):
            within = file.relative_to(kept)
            own = within.with_name(f"{test}{within.name}") if within.name.startswith(".") else within
            target = self._within / inside(f"{name}/{own}")
            _make(target.parent)
            if not target.exists() or within.name != _OF_MACHINE:
                shutil.copyfile(file, target)

    def _folder(self, attempt: Attempt) -> str:
        group = self._groups[attempt.group]
        scripts = (group.pre, *group.tests, group.post, group.failsafe)
        script = next(each for each in scripts if each is not None and each.path == attempt.path)
        if attempt.role != "failsafe":
            return output_folder(group, script)
        killed = self._killed.get(attempt.group)
        test = next(
            (each for each in group.tests if killed is not None and each.path == killed[0].path), group.tests[0]
        )
        return f"{output_folder(group, test)}/{attempt.path.rpartition('/')[2]}"


def _make(folder: Path, *, exist: bool = True) -> None:
    """Only its owner may write to it. What others laid there is not followed."""
    mask = os.umask(0o022)
    try:
        folder.mkdir(parents=True, exist_ok=exist)
    finally:
        os.umask(mask)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is not yours", str(folder))


def _held(folder: Path) -> Path:
    """A way to a new folder, whatever its name leads to from now on; open for as long as the program runs."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    within = Path(f"/proc/self/fd/{descriptor}")
    if os.fstat(descriptor).st_uid != os.geteuid() or any(within.iterdir()):
        raise PermissionError(errno.EPERM, "somebody else has put a folder in its place", str(folder))
    return within
