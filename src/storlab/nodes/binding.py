"""Binding a program to CPUs and NUMA nodes of its machine, by numactl(8)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def _checked(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _LIST.fullmatch(text):
        raise ValueError(f'{value!r} is no list of CPUs or nodes: write "0-1" or "0,2"')
    return text


Numbers = Annotated[str, BeforeValidator(_checked), WithJsonSchema({"type": ["string", "integer"]})]
"""``"0-1,4"``, as numactl takes it; a single number may be written as one."""


def numactl(pin: str | None, numa: str | None) -> list[str]:
    """The words before a command that bind it: to the CPUs ``pin``, to CPUs and memory of the NUMA nodes ``numa``."""
    if pin is None and numa is None:
        return []
    words = ["numactl"]
    if numa is not None:
        words += [f"--cpunodebind={numa}", f"--membind={numa}"]
    if pin is not None:
        words.append(f"--physcpubind={pin}")
    return [*words, "--"]


def programs(pin: str | None, numa: str | None) -> tuple[str, ...]:
    """What the node must have for it."""
    return ("numactl",) if numactl(pin, numa) else ()
