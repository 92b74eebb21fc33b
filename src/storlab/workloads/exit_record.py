"""``exit.json``: how a workload's command ended, in its raw folder."""

from __future__ import annotations

from pathlib import Path

import orjson

from storlab.errors import ParseError
from storlab.measurements import Value
from storlab.metrics import MetricSpec
from storlab.nodes.process import ExitRecord

NAME = "exit.json"
ELAPSED = (
    MetricSpec("elapsed", "s", "lower", "max"),
    MetricSpec("cpu.user.time", "s", "lower"),
    MetricSpec("cpu.system.time", "s", "lower"),
    MetricSpec("max_rss", "B", "lower", "max"),
)
"""Metrics of every command, without a rule."""


def elapsed_values(record: ExitRecord) -> tuple[Value, ...]:
    """What is known of any command that ended."""
    known = (record.elapsed, record.cpu_user, record.cpu_system, record.max_rss)
    return tuple(spec.value(value) for spec, value in zip(ELAPSED, known, strict=True))


def exit_bytes(ended: ExitRecord) -> bytes:
    """The contents of ``exit.json``: the lasting part of an ``Exit``."""
    fields = {name: getattr(ended, name) for name in ExitRecord.__dataclass_fields__}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def read_exit(raw: Path) -> ExitRecord:
    """Read it back. Raises ``ParseError``."""
    path = raw / NAME
    try:
        fields = orjson.loads(path.read_bytes())
        return ExitRecord(**{**fields, "argv": tuple(fields["argv"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ParseError(f"can't be read: {error}", str(path)) from None


def bytes_of(path: Path) -> bytes:
    """A file's contents; nothing where there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
