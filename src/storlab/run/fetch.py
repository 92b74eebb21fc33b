"""Bringing what a workload left on its node into the run's raw records."""

from __future__ import annotations

import contextlib
from pathlib import Path

from storlab.nodes.node import Exit, Node
from storlab.workloads.exit_record import NAME, exit_bytes

MAX_FILE = 1024**3  # bytes; larger ones are left out, with a note in their place

_TAIL = 4096  # bytes


async def fetch_folder(node: Node, folder: str, into: Path) -> None:
    """Copy every regular file of a folder on the node, flat or not, into ``into``."""
    listing = await node.output("find", folder, "-type", "f", "-printf", "%s %P\\0")
    for entry in filter(None, listing.split("\0")):
        size, _, name = entry.partition(" ")
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if int(size) > MAX_FILE:
            path.with_name(f"{path.name}.left-out").write_text(f"{size} bytes: longer than {MAX_FILE}\n")
        else:
            with contextlib.suppress(FileNotFoundError):  # it was a passing one
                path.write_bytes(await node.read(f"{folder}/{name}"))


def keep_exit(raw: Path, ended: Exit) -> None:
    """Write ``exit.json``, ``stdout`` and ``stderr`` beside what was fetched."""
    raw.mkdir(parents=True, exist_ok=True)
    (raw / NAME).write_bytes(exit_bytes(ended))
    for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        if output:
            (raw / name).write_bytes(output)
    if not (raw / "stdout").exists():
        (raw / "stdout").touch()


def last_output(folder: Path) -> str:
    """The end of what the commands of a trial printed, each with the place of its file."""
    files = [*sorted(folder.rglob("stderr")), *sorted(folder.rglob("stdout"))]
    texts = {path: path.read_bytes()[-_TAIL:].decode(errors="replace").strip() for path in files}
    return "\n".join(f"{path.relative_to(folder)}:\n{text}" for path, text in texts.items() if text)
