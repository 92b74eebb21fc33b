"""A run's folder that is held open while it is written: what is renamed meanwhile is still found, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import StorlabError
from storlab.records.run_folder import RunFolder


@dataclass(frozen=True)
class HeldFolder:
    """``named``: as it was called when it was opened. ``run``: the same by its descriptor, whatever its name is now."""

    named: RunFolder
    descriptor: int

    @property
    def run(self) -> RunFolder:
        return RunFolder(Path(f"/proc/self/fd/{self.descriptor}"))

    @property
    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            return os.path.samestat(self.named.path.stat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def refuse_moved(self) -> None:
        """Raise ``StorlabError`` where it was renamed, removed or replaced, or a link on the way leads elsewhere."""
        if self.is_in_place:
            return
        now = str(self.run.path.readlink())
        where = "it was removed" if now.endswith(" (deleted)") else f"it is {now} now"
        rest = "" if now.endswith(" (deleted)") else f"; its trials are in there, and `storlab resume {now}` resumes it"
        raise StorlabError(
            f"{self.named.path} is not the folder of this run any more: {where}. The run was stopped, "
            f"and what it had set up is torn down{rest}"
        )


@contextmanager
def held(run: RunFolder) -> Iterator[HeldFolder]:
    """Within, the folder is open. Raises ``OSError``."""
    descriptor = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield HeldFolder(run, descriptor)
    finally:
        os.close(descriptor)
