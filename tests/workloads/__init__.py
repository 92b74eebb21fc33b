"""How programs of workloads end, and what they leave in the folder of a trial."""

from pathlib import Path

from storlab.nodes.process import ExitRecord
from storlab.workloads.base import exit_bytes


def ended(
    code: int | None = 0, signal: str | None = None, timed_out: bool = False, argv: tuple[str, ...] = ("program",)
) -> ExitRecord:
    return ExitRecord(argv, code, signal, timed_out, None, 0.0, 1.0, 2.0, 0.5, 0.25, 2**21, 0)


DONE, FAILED, KILLED, LIMITED = ended(), ended(1), ended(None, "SIGKILL"), ended(None, "SIGTERM", True)


def left(folder: Path, record: ExitRecord = DONE, **files: str | bytes) -> Path:
    """The folder, with its standard streams, other ``files`` and how it ended."""
    for name, text in {"stdout": b"", "stderr": b"", **files, "exit.json": exit_bytes(record)}.items():
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder
