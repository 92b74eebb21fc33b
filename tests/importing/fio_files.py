"""Files that fio leaves, and what is read of them."""

from __future__ import annotations

import re
from pathlib import Path

from formats.fio.program import run_fio
from storlab.importing.fio.importer import FioImporter
from storlab.importing.importer import Part


def parts(text: bytes) -> list[Part]:
    return list(FioImporter().read(text, "x.json", {}))


def ran(folder: Path, name: str, *options: str, form: str = "json+") -> Path:
    """What fio really prints, with its messages ahead of it."""
    load = ["--name=load", f"--directory={folder}", "--filename=data", "--size=1m", f"--output-format={form}"]
    ended = run_fio(*load, *options, cwd=folder)
    ended.check_returncode()
    path = folder / name
    path.write_bytes(b"note: a line ahead of the document\n" + ended.stdout)
    return path


def later(whole: bytes, by: int = 60_000) -> bytes:
    """The same document, as if another run had given it, a minute later, or ``by`` ms."""
    return re.sub(rb'("timestamp_ms" ?: ?)(\d+)', lambda found: found[1] + b"%d" % (int(found[2]) + by), whole)
