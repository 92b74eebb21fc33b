"""What Bonnie++ left of one trial, as measurements; or why it failed, which it says in few words and sometimes wrong.

A write that a full disk cuts short sets no errno: Bonnie++ 2.00a then prints that of an earlier call ("Can't write
block.: No such file or directory"). Of its tests of files, and of single characters, it prints none. Whether the disk
was full, then follows from what was free before.
"""

from __future__ import annotations

import re
from pathlib import Path

from storlab.errors import DiskFull, ParseError, TrialError
from storlab.measurements import Measurements, metric_frame
from storlab.nodes.process import ExitRecord
from storlab.text import is_whole
from storlab.tools.bonnie.results import read_bonnie
from storlab.units import size_text
from storlab.workloads.base import bytes_of, elapsed_values, read_exit, unfinished

_CUT_SHORT = re.compile(r"Can't write block\.: (No such file or directory|Success|No space left on device|Disk quota)")
_NO_REASON = re.compile(r"Can't (write data|write\(\)|create|make directory)")


def read_results(raw: Path, free: Path, chunk: int, needed: tuple[int, int]) -> Measurements:
    """``free``: what was free before; ``chunk``: bytes, which its CSV doesn't say; ``needed``: bytes, and inodes.

    Raises ``DiskFull``, ``TimedOut`` or ``CommandFailed`` with Bonnie++'s own message, ``ParseError``.
    """
    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if ended.code != 0:
        raise _failure(ended, said, bytes_of(free), needed)
    source = str(raw / "stdout")
    runs, warnings = read_bonnie(bytes_of(raw / "stdout"), source)
    if len(runs) != 1:
        raise ParseError(f"holds {len(runs)} results of Bonnie++, and not one", source)
    (run,) = runs
    facts: dict[str, object] = {**run.told(), **({"io_chunk_size": str(chunk)} if "file_size" in run.facts else {})}
    notes = (*warnings, *filter(None, [run.untold()]))
    return Measurements(metric_frame([*run.values(), *elapsed_values(ended)]), warnings=notes, facts=facts)


def _failure(ended: ExitRecord, said: str, free: bytes, needed: tuple[int, int]) -> TrialError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    message = next((line for line in lines if line.startswith("Can't ")), "")
    lack = _lack(free, needed)
    if not ended.timed_out and (_CUT_SHORT.match(message) or (lack and _NO_REASON.match(message))):
        return DiskFull(f"target full{lack and f': {lack}'} (bonnie++: {message})", said)
    return unfinished("bonnie++", ended, said, message)


def _lack(free: bytes, needed: tuple[int, int]) -> str:
    """Which of both there was too little of, in words; empty where that isn't known, or there was enough."""
    words = free.decode(errors="replace").split()
    if len(words) != 2 or not all(is_whole(word) for word in words):
        return ""
    (size, files), (space, inodes) = needed, map(int, words)
    if size > space:
        return f"bonnie++ writes {size_text(size)}, and {size_text(space)} was free"
    if files > inodes > 0:  # 0: there is no limit, or none that is known
        return f"bonnie++ creates {files} files, and {inodes} inodes were free"
    return ""
