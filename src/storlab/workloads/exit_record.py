"""``exit.json``: how a workload's command ended, in its raw folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from storlab.errors import ParseError
from storlab.measurements import Value
from storlab.metrics import MetricSpec
from storlab.nodes.node import Exit

NAME = "exit.json"
ELAPSED = (
    MetricSpec("elapsed", "s", "lower", "max"),
    MetricSpec("cpu.user.time", "s", "lower"),
    MetricSpec("cpu.system.time", "s", "lower"),
    MetricSpec("max_rss", "B", "lower", "max"),
)
"""Metrics of every command, without a rule."""


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


def elapsed_values(record: ExitRecord) -> tuple[Value, ...]:
    """What is known of any command that ended."""
    known = (record.elapsed, record.cpu_user, record.cpu_system, record.max_rss)
    return tuple(spec.value(value) for spec, value in zip(ELAPSED, known, strict=True))


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
