"""Why jobs of fio's ended with an error, as far as fio says."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from storlab.errors import CommandFailed, DiskFull
from storlab.tools.fio.metrics import Job

_FULL = re.compile(r"error on file (?P<path>.+?): No space left on device")


class JobFailed(CommandFailed):
    """A job of fio's ended with an error; ``number`` is its errno, where that is known."""

    def __init__(self, message: str, detail: str = "", number: int = 0) -> None:
        super().__init__(message, detail)
        self.number = number


def failure(jobs: Sequence[Job], source: str, messages: Sequence[str]) -> CommandFailed | DiskFull:
    """Why those of ``jobs`` that ended with an error did so, with what fio said of it; there is at least one."""
    ended = [job for job in jobs if job.error]
    detail, told = "\n".join(messages), [line for line in messages if line.startswith("fio:")]
    for job in ended:
        if job.error == errno.ENOSPC:
            full = next((found for line in told if (found := _FULL.search(line))), None)
            laid_out = any("laying out" in line for line in told)
            where = full["path"] if full else f"laying out a file of {job.name}" if laid_out else job.name
            return DiskFull(f"fio: no space left on device: {where}", detail)
    first = ended[0]
    told = [line for line in told if f"err={first.error}/" in line or os.strerror(first.error) in line] or told
    # The line that names the file, if there is one, before the line that names a line of fio's source.
    said = min(told, key=lambda line: "io_u error on file" not in line, default="")
    name = errno.errorcode.get(first.error, "unknown")
    said = said.removeprefix("fio:").strip() or f"error {first.error} ({name})"
    return JobFailed(f"{source}: fio: job {first.name}: {said}", detail, first.error)
