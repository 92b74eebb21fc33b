"""Sizes, durations and shares as keys of study files, and as ``amounts`` reads and writes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from storlab.base.amounts import (
    MAX_DURATION,
    MAX_SIZE,
    parse_duration,
    parse_share,
    parse_size,
    shown,
    size_text,
)

__all__ = [
    "MAX_DURATION",
    "MAX_SIZE",
    "Duration",
    "GuestMemory",
    "Share",
    "Size",
    "parse_duration",
    "parse_share",
    "parse_size",
    "power_of_two",
    "shown",
    "size_text",
]

_LEAST_MEMORY = 128 * 1024**2  # bytes
_MEMORY_STEP = 2 * 1024**2  # bytes


def power_of_two(what: str, least: int, most: int) -> AfterValidator:
    """Refuses sizes that are no power of two in these bounds: ``700 is not a valid size of a block: …``."""

    def checked(size: int | None) -> int | None:
        if size is not None and (not least <= size <= most or size & (size - 1)):
            bounds = f"from {size_text(least)} to {size_text(most)}"
            raise ValueError(f"{size} is no {what}: a power of two {bounds}")
        return size

    return AfterValidator(checked)


def _guest_memory(size: int) -> int:
    if size < _LEAST_MEMORY:
        raise ValueError('a guest needs 128M at least to boot: write memory = "512M"')
    if size % _MEMORY_STEP:
        raise ValueError("a guest's memory is a multiple of 2M")
    return size


def _schema(pattern: str, number: str, example: str) -> WithJsonSchema:
    text = {"type": "string", "pattern": pattern}
    return WithJsonSchema({"anyOf": [text, {"type": number}], "examples": [example]})


Size = Annotated[
    int, BeforeValidator(parse_size), _schema(r"^\s*\d+(\.\d+)?\s*[kmgtpKMGTP]?(i?[bB])?\s*$", "integer", "4k")
]
GuestMemory = Annotated[Size, AfterValidator(_guest_memory)]
"""A size that the memory of a virtual machine can have."""
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    _schema(r"^\s*(\d+(\.\d+)?\s*(us|µs|ms|s|sec|m|min|h|d)\s*)+$", "number", "60s"),
]
Share = Annotated[
    float, BeforeValidator(parse_share), _schema(r"^\s*(±|\+/-|\+-)?\s*\d+(\.\d+)?\s*%\s*$", "number", "5%")
]
