"""A run's folder that is held open while it is written: what is renamed meanwhile is still found, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import StorlabError
from storlab.records.manifest import NAME
from storlab.records.run_folder import RunFolder


@dataclass(frozen=True)
class HeldFolder:
    """``named``: as it was called when it was opened. ``run``: the same by its descriptor, whatever its name is now."""

    named: RunFolder
    descriptor: int

    @property
    def run(self) -> RunFolder:
        return RunFolder(Path(f"/proc/self/fd/{self.descriptor}"))

    def by_descriptor(self, path: Path) -> Path:
        """What lies in the folder, whatever the folder's name leads to by now."""
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
        yield folder
    finally:
        os.close(descriptor)
