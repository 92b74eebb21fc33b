"""``exit.json``: how a workload's command ended, in its raw folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from storlab.errors import ParseError
from storlab.nodes.node import Exit

NAME = "exit.json"


@dataclass(frozen=True)
class ExitRecord:
    """The lasting part of an ``Exit``. Times in seconds, ``start`` by its node's clock; ``max_rss`` in bytes."""

    argv: tuple[str, ...]
    code: int | None
    signal: str | None
    timed_out: bool
    stopped_by: str | None
    late: float | None
    start: float
    elapsed: float
    cpu_user: float
    cpu_system: float
    max_rss: int
    survivors: int


def exit_bytes(ended: Exit) -> bytes:
    """The contents of ``exit.json``."""
    fields = {name: getattr(ended, name) for name in ExitRecord.__dataclass_fields__}
    return orjson.dumps(asdict(ExitRecord(**fields)), option=orjson.OPT_INDENT_2)


def read_exit(raw: Path) -> ExitRecord:
    """Read it back. Raises ``ParseError``."""
    path = raw / NAME
    try:
        fields = orjson.loads(path.read_bytes())
        return ExitRecord(**{**fields, "argv": tuple(fields["argv"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ParseError(f"can't be read: {error}", str(path)) from None
