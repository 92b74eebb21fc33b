"""Binding a program to CPUs and NUMA nodes of its machine, by numactl(8)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from storlab.reach import Choice

_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_ALL = "all"  # numactl's own word; nothing need be bound then, nor numactl be there


def _checked(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if text in (None, _ALL):
        return None
    if not isinstance(text, str) or not _LIST.fullmatch(text):
        raise ValueError(f'{value!r} is no list of CPUs or nodes: write "0-1", "0,2" or "all"')
    return text


Numbers = Annotated[Choice | None, BeforeValidator(_checked), WithJsonSchema({"type": ["string", "integer"]})]
"""``"0-1,4"``, as numactl takes it, or ``"all"``, which is ``None``; a single number may be written as one."""


def numactl(pin: str | None, numa: str | None) -> list[str]:
    """The words before a command that bind it: to the CPUs ``pin``, to CPUs and memory of the NUMA nodes ``numa``."""
    words = [] if numa is None else [f"--cpunodebind={numa}", f"--membind={numa}"]
    words += [] if pin is None else [f"--physcpubind={pin}"]
    return ["numactl", *words, "--"] if words else []


def programs(pin: str | None, numa: str | None) -> tuple[str, ...]:
    return ("numactl",) if numactl(pin, numa) else ()
