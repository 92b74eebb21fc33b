"""The user's own commands of a lab file: they make hosts, reserve them, and give them back.

Words, which no shell reads; run in the lab file's folder. What they say on standard error is the user's to see at once,
since making a machine takes minutes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from storlab.errors import UserError
from storlab.limits import STUDY_TEXT


def printed(argv: Sequence[str], folder: Path, what: str) -> bytes:
    """What a command prints. Raises ``UserError`` where it can't be run, or ends with another status than 0.

    ``what``: the lab file and the key that names the command, for messages.
    """
    try:
        ended = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise UserError(f"{what}: {argv[0]} can't be run: {error.strerror}") from None
    if ended.returncode != 0:
        how = f"status {ended.returncode}" if ended.returncode > 0 else f"signal {-ended.returncode}"
        raise UserError(f"{what}: {argv[0]} ended with {how}; what it says is above")
    if len(ended.stdout) > STUDY_TEXT:
        raise UserError(f"{what}: {argv[0]} printed more than {STUDY_TEXT // 1024**2} MiB")
    return ended.stdout


def for_host(argv: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """The command for one host: ``{host}`` and ``{ssh}`` put into each word, nothing else."""
    found = []
    for word in argv:
        for name, value in words.items():
            word = word.replace(f"{{{name}}}", value)
        found.append(word)
    return found
